// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func trapTarget()
// Begins with a push, as the functions that are probed do.
TEXT ·trapTarget(SB), NOSPLIT, $0-0
	PUSHQ AX
	POPQ  AX
	RET

// func trapAddress() uint64
TEXT ·trapAddress(SB), NOSPLIT, $0-8
	LEAQ ·trapTarget(SB), AX
	MOVQ AX, ret+0(FP)
	RET
