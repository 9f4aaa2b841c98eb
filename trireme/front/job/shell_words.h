// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"

namespace trireme::job {

/// `text` as one word of a bash script, on one line: bare where nothing in it is special, else in
/// single quotes, and in $'…' where it has control characters.
TRIREME_API std::string shell_word(std::string_view text);

}  // namespace trireme::job
