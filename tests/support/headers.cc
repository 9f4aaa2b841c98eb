// SPDX-License-Identifier: Apache-2.0
// What headers.cmake's precompiled header is compiled with; there is nothing else in it.
