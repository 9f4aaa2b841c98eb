// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/standing.h"

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

constexpr const char* kStandingVersion = "trireme standing 1";
constexpr const char* kStandingNames[] = {"in", "free", "promised", "left"};
constexpr size_t kLongestName = 1024;

}  // namespace

std::string to_text(const Standing& s) {
  const nlohmann::json json{{"version", kStandingVersion},
                            {"is", kStandingNames[s.is]},
                            {"generation", s.generation},
                            {"of", s.of},
                            {"to", s.to},
                            {"store", s.store}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Standing read_standing(const std::string& text) try {
  const auto json = nlohmann::json::parse(text);
  check<Corrupt>(json.at("version") == kStandingVersion,
                 "a launcher says '{}' of itself, and this is '{}'", json.at("version").dump(),
                 kStandingVersion);
  Standing s;
  const std::string is = json.at("is");
  int kind = 0;
  while (kind < 4 && is != kStandingNames[kind]) ++kind;
  check<Corrupt>(json.at("generation").is_number_integer(), "a launcher's generation is no number");
  s.generation = json.at("generation");
  s.of = json.at("of");
  s.to = json.at("to");
  s.store = json.at("store");
  check<Corrupt>(kind < 4 && s.generation >= -1 && s.of.size() <= kLongestName &&
                     s.to.size() <= kLongestName && s.store.size() <= kLongestName,
                 "a launcher says of itself: {}", json.dump());
  s.is = static_cast<Standing::Kind>(kind);
  return s;
} catch (const nlohmann::json::exception& error) {
  fail<Corrupt>("a launcher says how it stands in words that are not ours: {}", error.what());
}

}  // namespace trireme::launch
