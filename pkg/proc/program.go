// SPDX-License-Identifier: Apache-2.0

package proc

// Program identifies what a process executes: it changes with an exec, while
// the PID and the start time stay. The zero value is no program's.
type Program struct {
	exe         string
	stack, code uint64
}

// Program returns the identity of the program that the process executes now.
// Where its stack and code begin is random for each exec, unless randomisation
// is off; then an exec of the same file is not told apart.
func (p *Process) Program() (Program, error) {
	stat, err := p.stat()
	if err != nil {
		return Program{}, err
	}
	exe, err := p.readlink("exe")
	if err != nil {
		return Program{}, err
	}
	return Program{exe: exe, stack: uint64(stat.StartStack), code: uint64(stat.StartCode)}, nil
}
