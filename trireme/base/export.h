// SPDX-License-Identifier: Apache-2.0
#pragma once

// What leaves the shared libraries. Everything else is hidden (-fvisibility=hidden). Exceptions
// carry it so that `catch` works across libraries.
#define TRIREME_API __attribute__((visibility("default")))
