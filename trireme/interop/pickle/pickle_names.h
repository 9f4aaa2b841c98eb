// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace trireme::interop {

/// What the names that a pickle may import mean to us.
enum class Meaning {
  refused,
  dtype,      // torch.float32
  storage,    // torch.FloatStorage, torch.storage.UntypedStorage
  dict,       // collections.OrderedDict, collections.Counter
  tensor,     // torch._utils._rebuild_tensor_v2, _v3
  parameter,  // torch._utils._rebuild_parameter, …_with_state
  size,       // torch.Size
  text,       // torch.device, a layout: a word about a tensor
  path,       // pathlib.PosixPath
  choice,     // an enum class of DCP's
  attribute,  // getattr, of an enum class alone: how Python 3.11 pickles one of its values
  same,       // torch.jit._pickle.build_intlist, …: its first argument
  data,       // a class whose instances are only data: DCP's metadata, modules of LibTorch
};

/// Of `module`.`name`. Whatever is not listed is refused; nothing that is listed is ever run.
Meaning meaning_of(std::string_view module, std::string_view name);

}  // namespace trireme::interop
