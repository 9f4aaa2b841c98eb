// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/etcd/messages.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"

namespace trireme::etcd {
namespace {

using Json = nlohmann::json;

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string out;
  uint32_t bits = 0;
  int left = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (left += 8; left >= 6; left -= 6) out += kDigits[bits >> (left - 6) & 63];
  }
  if (left > 0) out += kDigits[bits << (6 - left) & 63];
  out.append((4 - out.size() % 4) % 4, '=');
  return out;
}

std::string from_base64(std::string_view text) {
  const std::string_view digits = kDigits;
  std::string out;
  uint32_t bits = 0;
  int left = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const size_t digit = digits.find(c);
    check<Corrupt>(digit != std::string_view::npos, "a value is not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((left += 6) >= 8) out += static_cast<char>(bits >> (left -= 8) & 255);
  }
  return out;
}

/// An object, or Corrupt.
Json parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check<Corrupt>(json.is_object(), "the answer is not a JSON object");
  return json;
}

/// A text or a number; 0 where it is left out.
int64_t whole(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return 0;
  if (at->is_number_integer()) return at->get<int64_t>();
  check<Corrupt>(at->is_string(), "'{}' is not a number", name);
  const auto& text = at->get_ref<const std::string&>();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check<Corrupt>(error == std::errc() && end == text.data() + text.size(), "'{}' is not a number",
                 name);
  return value;
}

/// Of a range's answer.
std::optional<std::string> first_value(const Json& range) {
  const auto kvs = range.find("kvs");
  if (kvs == range.end()) return std::nullopt;
  check<Corrupt>(kvs->is_array(), "'kvs' is not a list");
  if (kvs->empty()) return std::nullopt;
  const Json& first = kvs->front();
  check<Corrupt>(first.is_object(), "'kvs' holds no objects");
  const auto value = first.find("value");
  if (value == first.end()) return "";
  check<Corrupt>(value->is_string(), "a value is not a text");
  return from_base64(value->get_ref<const std::string&>());
}

}  // namespace

Message get_message(std::string_view key) {
  return {"/v3/kv/range", Json{{"key", to_base64(key)}}.dump()};
}

Message put_if_absent_message(std::string_view key, std::string_view value, int64_t lease) {
  const std::string name = to_base64(key);
  const Json absent{
      {"key", name}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}};
  const Json put{{"key", name}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}};
  const Json transaction{{"compare", Json::array({absent})},
                         {"success", Json::array({Json{{"request_put", put}}})},
                         {"failure", Json::array({Json{{"request_range", {{"key", name}}}}})}};
  return {"/v3/kv/txn", transaction.dump()};
}

Message grant_message(int64_t seconds) {
  return {"/v3/lease/grant", Json{{"TTL", std::to_string(seconds)}}.dump()};
}

Message keep_alive_message(int64_t lease) {
  return {"/v3/lease/keepalive", Json{{"ID", std::to_string(lease)}}.dump()};
}

Message revoke_message(int64_t lease) {
  return {"/v3/lease/revoke", Json{{"ID", std::to_string(lease)}}.dump()};
}

std::optional<std::string> read_value(const std::string& json) {
  const Json answer = parse(json);
  check<Corrupt>(answer.contains("header"), "the answer has no header");
  return first_value(answer);
}

std::optional<std::string> read_put_if_absent(const std::string& json) {
  const Json answer = parse(json);
  check<Corrupt>(answer.contains("header"), "the answer has no header");
  const auto succeeded = answer.find("succeeded");
  if (succeeded != answer.end()) {
    check<Corrupt>(succeeded->is_boolean(), "'succeeded' is neither true nor false");
    if (succeeded->get<bool>()) return std::nullopt;
  }
  const auto responses = answer.find("responses");
  check<Corrupt>(responses != answer.end() && responses->is_array() && !responses->empty() &&
                     responses->front().is_object() &&
                     responses->front().contains("response_range"),
                 "the answer does not say what the key holds");
  const Json& range = responses->front()["response_range"];
  check<Corrupt>(range.is_object(), "'response_range' is not an object");
  const auto value = first_value(range);
  check<Corrupt>(value.has_value(), "the key was neither put nor there");
  return value;
}

int64_t read_grant(const std::string& json) {
  const int64_t id = whole(parse(json), "ID");
  check<Corrupt>(id != 0, "the answer names no lease");
  return id;
}

bool read_keep_alive(const std::string& json) {
  // A stream of answers, of which there is one.
  const Json answer = parse(json);
  const auto result = answer.find("result");
  check<Corrupt>(result != answer.end() && result->is_object(), "the answer has no result");
  return whole(*result, "TTL") > 0;
}

Refusal read_refusal(const std::string& json) {
  const Json answer = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  Refusal refusal;
  if (!answer.is_object()) return refusal;
  // Of a stream, under "error".
  const Json* said = &answer;
  if (const auto inner = answer.find("error"); inner != answer.end() && inner->is_object())
    said = &*inner;
  for (const char* name : {"code", "grpc_code"})
    if (const auto code = said->find(name); code != said->end() && code->is_number_integer())
      refusal.code = code->get<int>();
  for (const char* name : {"message", "error"})
    if (const auto text = said->find(name); text != said->end() && text->is_string()) {
      refusal.text = text->get<std::string>();
      break;
    }
  return refusal;
}

}  // namespace trireme::etcd
