// SPDX-License-Identifier: Apache-2.0

// Command unfreed shows which code holds the memory of a running Python or
// PyTorch process: it attaches from outside and writes pprof profiles of
// outstanding memory in which Python and native frames stand in one stack.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
