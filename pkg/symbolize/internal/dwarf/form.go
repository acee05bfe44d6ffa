// SPDX-License-Identifier: Apache-2.0

package dwarf

// form is how an attribute is encoded: DW_FORM_*, DWARF 5 section 7.5.6, with
// the extensions of GNU for split and supplementary files.
type form uint16

const (
	formAddr         form = 0x01
	formBlock2       form = 0x03
	formBlock4       form = 0x04
	formData2        form = 0x05
	formData4        form = 0x06
	formData8        form = 0x07
	formString       form = 0x08
	formBlock        form = 0x09
	formBlock1       form = 0x0a
	formData1        form = 0x0b
	formFlag         form = 0x0c
	formSdata        form = 0x0d
	formStrp         form = 0x0e
	formUdata        form = 0x0f
	formRefAddr      form = 0x10
	formRef1         form = 0x11
	formRef2         form = 0x12
	formRef4         form = 0x13
	formRef8         form = 0x14
	formRefUdata     form = 0x15
	formIndirect     form = 0x16
	formSecOffset    form = 0x17
	formExprloc      form = 0x18
	formFlagPresent  form = 0x19
	formStrx         form = 0x1a
	formAddrx        form = 0x1b
	formRefSup4      form = 0x1c
	formStrpSup      form = 0x1d
	formData16       form = 0x1e
	formLineStrp     form = 0x1f
	formRefSig8      form = 0x20
	formImplicit     form = 0x21
	formLoclistx     form = 0x22
	formRnglistx     form = 0x23
	formRefSup8      form = 0x24
	formStrx1        form = 0x25
	formStrx2        form = 0x26
	formStrx3        form = 0x27
	formStrx4        form = 0x28
	formAddrx1       form = 0x29
	formAddrx2       form = 0x2a
	formAddrx3       form = 0x2b
	formAddrx4       form = 0x2c
	formGNUAddrIndex form = 0x1f01
	formGNUStrIndex  form = 0x1f02
	formGNURefAlt    form = 0x1f20
	formGNUStrpAlt   form = 0x1f21
)

// value is an attribute's value before it is resolved: a number, an offset, an
// index or, for a string or block in place, its offset in the section. The
// zero value is an absent attribute.
type value struct {
	form form
	u    uint64
}

func (v value) present() bool { return v.form != 0 }

// format is what the encoding of attributes depends on.
type format struct {
	is64    bool // 64-bit DWARF: offsets are 8 bytes long
	version uint16
}

func (f format) offsetSize() int {
	if f.is64 {
		return 8
	}
	return 4
}

// size returns the encoded size of a form, -1 if it varies.
func (f format) size(form form) int {
	switch form {
	case formFlagPresent, formImplicit:
		return 0
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4
	case formAddr, formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		return f.offsetSize()
	case formRefAddr:
		if f.version <= 2 {
			return 8 // the size of an address
		}
		return f.offsetSize()
	}
	return -1
}

// value reads an attribute. implicit is the value that stands in the
// declaration, for formImplicit.
func (c *cursor) value(f format, fm form, implicit uint64) value {
	if fm == formIndirect {
		if fm = form(min(c.uleb(), 0xffff)); fm == formIndirect || fm == formImplicit {
			c.fail()
		}
	}
	v := value{form: fm}
	switch n := f.size(fm); n {
	case 0:
		v.u = 1
		if fm == formImplicit {
			v.u = implicit
		}
		return v
	case 1:
		v.u = uint64(c.u8())
		return v
	case 2:
		v.u = uint64(c.u16())
		return v
	case 3:
		v.u = uint64(c.u24())
		return v
	case 4:
		v.u = uint64(c.u32())
		return v
	case 8:
		v.u = c.u64()
		return v
	case 16:
		c.skip(16)
		return v
	}
	switch fm {
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		v.u = c.uleb()
	case formSdata:
		v.u = uint64(c.sleb())
	case formString:
		v.u = c.off()
		c.skipString()
	case formBlock1:
		c.skip(uint64(c.u8()))
	case formBlock2:
		c.skip(uint64(c.u16()))
	case formBlock4:
		c.skip(uint64(c.u32()))
	case formBlock, formExprloc:
		c.skip(c.uleb())
	default:
		c.fail()
	}
	return v
}
