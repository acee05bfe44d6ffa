// SPDX-License-Identifier: Apache-2.0

// Package kfeature finds out what the running kernel can do, by trying it.
package kfeature
