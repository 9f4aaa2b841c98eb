// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of memory limits and of memory use, which a sanitizer's own memory would upset, and for
// tests whose many rounds a sanitizer adds nothing to.
namespace trireme::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitized = true;
#else
constexpr bool kThreadSanitized = false;
#endif

}  // namespace trireme::testing
