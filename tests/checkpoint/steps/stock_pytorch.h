// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tests/interop/told.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"

namespace trireme::test {

/// The tensors of a folder of safetensors as PyTorch for Python (2.8 and later) reads them: key →
/// dtype, shape and, in hexadecimal, bytes. None where it is not installed: then `why` says what is
/// missing.
inline std::optional<nlohmann::json> read_by_stock_pytorch(const std::string& folder,
                                                           std::string* why) {
  PrivateFolder out;
  trireme::testing::Command python({"/usr/bin/python3",
                                    trireme::testing::source_path("/tests/interop/dcp_2x.py"),
                                    "read", folder, out / "told.json"});
  const int status = python.finish(std::chrono::seconds(120));
  if (status == 77 || status == 127) {
    *why = python.out.empty() ? "/usr/bin/python3 is not installed" : python.out;
    return {};
  }
  check<Error>(status == 0, "dcp_2x.py read {}: {}", folder, python.err);
  return interop::testing::told(out / "told.json")["tensors"];
}

}  // namespace trireme::test
