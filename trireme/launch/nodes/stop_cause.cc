// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/launch/nodes/nodes.h"

namespace trireme::launch {

std::string to_text(const StopCause& cause) {
  const nlohmann::json json{{"node", cause.node},
                            {"sentence", cause.sentence},
                            {"reported", cause.reported},
                            {"may_restart", cause.may_restart},
                            {"counts", cause.counts}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StopCause read_stop_cause(const std::string& text) try {
  const auto json = nlohmann::json::parse(text);
  return {json.at("node"), json.at("sentence"), json.at("reported"), json.at("may_restart"),
          json.at("counts")};
} catch (const nlohmann::json::exception& error) {
  fail<Corrupt>("the job's store says why an attempt ended in words that are not ours: {}",
                error.what());
}

}  // namespace trireme::launch
