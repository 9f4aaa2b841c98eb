// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/comm/flight/words.h"

// The local engine's data types, which are those of the recorder.
namespace trireme::local {

using flight::DType;
using flight::is_complex;
using flight::is_integer;
using flight::name_of;
using flight::size_of;

}  // namespace trireme::local
