// SPDX-License-Identifier: Apache-2.0

/* A library of data: its only code is what every library has to start with. */
const char data_table[4096] = {1};
