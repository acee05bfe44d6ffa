// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/unfreed/unfreed/pkg/alloc"
)

// function returns a row of the table.
func function(tb testing.TB, name string) *alloc.Function {
	tb.Helper()
	for _, f := range alloc.HostFunctions() {
		if f.Name == name {
			return &f
		}
	}
	tb.Fatalf("the table has no function %q", name)
	return nil
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

type placeCase struct {
	name string
	code string
	fn   string
	want Placement
}

func testPlace(t *testing.T, machine elf.Machine, cases []placeCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Place(unhex(t, c.code), 0x1000, machine, function(t, c.fn))
			if err != nil {
				t.Fatal(err)
			}
			if (got.Reason == "") != got.Emulated {
				t.Errorf("emulated is %t and the reason %q", got.Emulated, got.Reason)
			}
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Placement{}, "Reason")); d != "" {
				t.Errorf("placement (-want +got):\n%s", d)
			}
		})
	}
}

func TestPlaceX64(t *testing.T) {
	testPlace(t, elf.EM_X86_64, []placeCase{
		{"glibc malloc: push r12; push rbp; ret",
			"415455c3", "malloc",
			Placement{Emulated: true, Instruction: "push %r12"}},
		{"endbr64; push r15; ret",
			"f30f1efa4157c3", "realloc",
			Placement{Offset: 4, Emulated: true, Instruction: "push %r15"}},
		{"glibc free: test rdi,rdi; je; push rbp",
			"4885ff740655488d77f05dc3", "free",
			Placement{Offset: 5, Emulated: true, SkipsNull: true, Instruction: "push %rbp"}},
		{"the same before a function whose return is probed: je",
			"4885ff740655488d77f05dc3", "malloc",
			Placement{Offset: 3, Emulated: true, Instruction: "je 0x100b"}},
		{"test rdi,rdi; je; lea -1(rdi),rdi: nothing but je",
			"4885ff7406488d7fff535bc3", "free",
			Placement{Offset: 3, Emulated: true, Instruction: "je 0x100b"}},
		{"mimalloc free: mov rdi,rcx; test rdi,rdi; je; lea -1(rdi),rdi; push",
			"4889f94885ff7406488d7fff535bc3", "free",
			Placement{Offset: 12, Emulated: true, SkipsNull: true, Args: []int{3, 1, 2, 3, 4, 5}, Instruction: "push %rbx"}},
		{"test rdi,rdi; mov rdi,rbx; je; push rbp: the flags survive the mov",
			"4885ff4889fb740155c3", "free",
			Placement{Offset: 8, Emulated: true, SkipsNull: true, Instruction: "push %rbp"}},
		{"test rdi,rdi; and $1,eax; je; push: the flags are another's",
			"4885ff83e001740155c3", "free",
			Placement{Offset: 6, Emulated: true, Instruction: "je 0x1009"}},
		{"mov rdi,rsi; mov rbx,rdi; test rdi,rdi; je; push: no longer the pointer",
			"4889fe4889df4885ff740155c3", "free",
			Placement{Offset: 9, Emulated: true, Args: []int{1, 1, 2, 3, 4, 5}, Instruction: "je 0x100c"}},
		{"test edi,edi; je; push: half of the pointer",
			"85ff740155c3", "free",
			Placement{Offset: 2, Emulated: true, Instruction: "je 0x1005"}},
		{"test rsi,rsi; je; push: not the pointer",
			"4885f6740155c3", "free",
			Placement{Offset: 3, Emulated: true, Instruction: "je 0x1006"}},
		{"jemalloc malloc: cmp; ja",
			"4881ff001000007704488d4707c3", "malloc",
			Placement{Offset: 7, Emulated: true, Instruction: "ja 0x100d"}},
		{"glibc mmap: mov ecx,r10d; test; jne: all six arguments are there",
			"4189ca41f7c1ff0f00007507b8090000000f05c3", "mmap",
			Placement{Offset: 10, Emulated: true, Instruction: "jne 0x1013"}},
		{"glibc munmap: mov; syscall",
			"b80b0000000f05c3", "munmap",
			Placement{Instruction: "mov $0xb,%eax"}},
		{"rdi is written before cmp; ja",
			"64488b384881fe000400007700c3", "malloc",
			Placement{Instruction: "mov %fs:(%rax),%rdi"}},
		{"mimalloc malloc: mov rdi,rsi; then rdi is written; cmp; ja",
			"4889fe64488b384881fe000400007700c3", "malloc",
			Placement{Offset: 14, Emulated: true, Args: []int{1, 1, 2, 3, 4, 5}, Instruction: "ja 0x1010"}},
		{"mov edi,esi keeps half of it only",
			"89fe64488b384881fe000400007700c3", "malloc",
			Placement{Instruction: "mov %edi,%esi"}},
		{"mov rdi,rsi; rdi and rsi are written; ja",
			"4889fe64488b3864488b307700c3", "malloc",
			Placement{Instruction: "mov %rdi,%rsi"}},
		{"moved on twice: mov rdi,rsi; mov rsi,rdx; rdi and rsi are written; ja",
			"4889fe4889f264488b3864488b307700c3", "malloc",
			Placement{Offset: 14, Emulated: true, Args: []int{2, 1, 2, 3, 4, 5}, Instruction: "ja 0x1010"}},
		{"xchg rdi,rsi by way of rax: each argument in the other's register",
			"4889f84889f74889c67700c3", "calloc",
			Placement{Offset: 9, Emulated: true, Args: []int{1, 0, 2, 3, 4, 5}, Instruction: "ja 0x100b"}},
		{"the same in mmap, whose arguments are known by number",
			"4889f84889f74889c67700c3", "mmap",
			Placement{Instruction: "mov %rdi,%rax"}},
		{"the low byte of rdi is written",
			"40b70153c3", "malloc",
			Placement{Instruction: "mov $0x1,%dil"}},
		{"the same where the argument is another",
			"40b70153c3", "aligned_alloc",
			Placement{Offset: 3, Emulated: true, Instruction: "push %rbx"}},
		{"sub $0x18,rsp; push: the return address is elsewhere",
			"4883ec1853c3", "malloc",
			Placement{Instruction: "sub $0x18,%rsp"}},
		{"the same for a function whose return is not probed",
			"4883ec1853c3", "free",
			Placement{Offset: 4, Emulated: true, Instruction: "push %rbx"}},
		{"glibc reallocarray: mul rdx writes an argument before jo",
			"4889f048f7e24889c67001c3c3", "reallocarray",
			Placement{Instruction: "mov %rsi,%rax"}},
		{"a loop back to the first instruction",
			"535b48ffcf75f9c3", "malloc",
			Placement{Instruction: "push %rbx"}},
		{"a loop back to the second",
			"4889f8535b48ffc875f9c3", "malloc",
			Placement{Instruction: "mov %rdi,%rax"}},
		{"AVX behind the prologue",
			"4889f84889c253c5fdefc0c3", "malloc",
			Placement{Offset: 6, Emulated: true, Instruction: "push %rbx"}},
		{"a loop from behind AVX back to the push",
			"4889f853c5fdefc048ffc875f6c3", "malloc",
			Placement{Instruction: "mov %rdi,%rax"}},
		{"a long nop is not emulated by every kernel",
			"0f1f040055c3", "malloc",
			Placement{Offset: 4, Emulated: true, Instruction: "push %rbp"}},
		{"xchg ax,ax is nop",
			"6690c3", "malloc",
			Placement{Emulated: true, Instruction: "data16 nop"}},
		{"a call ends the walk",
			"e80000000055c3", "malloc",
			Placement{Instruction: "callq 0x1005"}},
		{"a tail jump is emulated itself",
			"e9e3030000", "malloc",
			Placement{Emulated: true, Instruction: "jmpq 0x13e8"}},
		{"code that is cut off", "4883", "malloc", Placement{Instruction: "rex.w"}},
		{"no code", "", "malloc", Placement{Instruction: "(unknown)"}},
	})
}

func TestPlaceA64(t *testing.T) {
	testPlace(t, elf.EM_AARCH64, []placeCase{
		{"cbz x0; stp", "000200b4fd7bbea9c0035fd6", "free",
			Placement{Emulated: true, Instruction: "cbz x0, .+0x40"}},
		{"paciasp; stp: before the return address is signed", "3f2303d5fd7bbea9c0035fd6", "malloc",
			Placement{Instruction: "hint #0x19"}},
		{"paciasp; cbz", "3f2303d5800000b4c0035fd6", "malloc",
			Placement{Instruction: "hint #0x19"}},
		{"the same for a function whose return is not probed", "3f2303d5800000b4c0035fd6", "free",
			Placement{Offset: 4, Emulated: true, Instruction: "cbz x0, .+0x10"}},
		{"bti c; mov x19,x0; cbz x1", "5f2403d5f30300aa010100b4c0035fd6", "malloc",
			Placement{Offset: 8, Emulated: true, Instruction: "cbz x1, .+0x20"}},
		{"adrp x3", "030000b0630440f9030100b4c0035fd6", "malloc",
			Placement{Emulated: true, Instruction: "adrp x3, .+0x1000"}},
		{"mov x8,x0; mov x0,x1; b", "e80300aae00301aa10000014", "malloc",
			Placement{Instruction: "mov x8, x0"}},
		{"cmp; b.hi", "1f4000f108020054c0035fd6", "malloc",
			Placement{Offset: 4, Emulated: true, Instruction: "b.hi .+0x40"}},
		{"sub sp; cbz", "ff8300d1000200b4c0035fd6", "malloc",
			Placement{Instruction: "sub sp, sp, #0x20"}},
		{"b", "00040014", "malloc",
			Placement{Emulated: true, Instruction: "b .+0x1000"}},
		{"ldr x9,[sp],#16 writes sp", "e90741f8000200b4", "malloc",
			Placement{Instruction: "ldr x9, [sp],#16"}},
		{"a loop back to cbz", "800000b4000400d1feffff17c0035fd6", "malloc",
			Placement{Instruction: "cbz x0, .+0x10"}},
		{"svc", "010000d4c0035fd6", "munmap",
			Placement{Instruction: "svc #0x0"}},
		{"no code", "", "malloc", Placement{Instruction: "(unknown)"}},
	})
}

func TestPlaceMachine(t *testing.T) {
	if _, err := Place(nil, 0, elf.EM_RISCV, function(t, "malloc")); !errors.Is(err, ErrMachine) {
		t.Errorf("error is %v, want ErrMachine", err)
	}
}

// FuzzPlace checks on any bytes that the instruction chosen lies in them, that
// one said to be emulated is, and that nothing before it touches what must be
// intact.
func FuzzPlace(f *testing.F) {
	f.Add(unhex(f, "4885ff740655488d77f05dc3"), true, uint8(9))
	f.Add(unhex(f, "f30f1efa4157c3"), true, uint8(2))
	f.Add(unhex(f, "4889f853c5fdefc048ffc875f6c3"), true, uint8(0))
	f.Add(unhex(f, "5f2403d5f30300aa010100b4c0035fd6"), false, uint8(0))
	table := alloc.HostFunctions()
	f.Fuzz(func(t *testing.T, code []byte, x64 bool, row uint8) {
		machine := elf.EM_AARCH64
		if x64 {
			machine = elf.EM_X86_64
		}
		fn := &table[int(row)%len(table)]
		p, err := Place(code, 0x1000, machine, fn)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Emulated {
			if p.Offset != 0 || p.Reason == "" || p.SkipsNull {
				t.Errorf("%+v: not emulated, so it must be at the start and say why", p)
			}
			return
		}
		if p.Offset >= uint64(len(code)) || p.Reason != "" {
			t.Fatalf("%+v in %d bytes", p, len(code))
		}
		if p.SkipsNull && fn.Role != alloc.RoleFree {
			t.Errorf("%+v skips calls of %s", p, fn.Name)
		}
		// What stands before it must give the same walk without it.
		before, err := Place(code[:p.Offset], 0x1000, machine, fn)
		if err != nil {
			t.Fatal(err)
		}
		if before.Emulated && !p.SkipsNull && before.Offset < p.Offset {
			// Only a jump that was cut off can make the difference.
			if x64 && !(&walkX64{code: code}).jumpedTo(int(before.Offset)) {
				t.Errorf("%+v, though %+v comes first", p, before)
			}
		}
	})
}

// TestNumber gives placements with moved arguments the rows that say so.
func TestNumber(t *testing.T) {
	table := alloc.HostFunctions()
	m := newMatcher(table)
	moved := Placement{Offset: 14, Emulated: true, Args: []int{1, 1, 2, 3, 4, 5}}
	row, p := m.number(m.rows["malloc"], moved)
	if fn := table[row]; fn.Name != "malloc" || fn.Size != 1 || !p.Emulated || p.Offset != 14 {
		t.Errorf("moved malloc has row %+v and placement %+v", fn, p)
	}
	row, p = m.number(m.rows["posix_memalign"], moved)
	if row != m.rows["posix_memalign"] || p.Emulated || p.Offset != 0 || p.Args != nil || p.Reason == "" {
		t.Errorf("a function without such a row has row %d and placement %+v", row, p)
	}
	moved.Args = nil
	if row, p = m.number(3, moved); row != 3 || p.Offset != 14 {
		t.Errorf("unmoved: row %d and placement %+v", row, p)
	}
}
