// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/index.h"

#include <cmath>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/checkpoint/checksum.h"
#include "trireme/checkpoint/strict_json.h"

namespace trireme {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMagic = "trireme.checkpoint";
constexpr std::string_view kBeforeDigits = "\"checksum\": \"xxh3:";
constexpr std::string_view kZeros = "0000000000000000";

std::string utf8_or_fail(const ordered_json& value) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    fail<UsageError>("checkpoint: a name is not UTF-8 text: {}",
                     value.dump(-1, ' ', true, json::error_handler_t::replace));
  }
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char c : bytes) text += fmt::format("{:02x}", c);
  return text;
}

std::string unhex(const std::string& text, const std::string& where) {
  std::string bytes;
  auto digit = [&](char c) {
    check<Corrupt>((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'), "{}: not hexadecimal", where);
    return c <= '9' ? c - '0' : c - 'a' + 10;
  };
  check<Corrupt>(text.size() % 2 == 0, "{}: not hexadecimal", where);
  for (size_t i = 0; i < text.size(); i += 2)
    bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return bytes;
}

ordered_json value_json(const IndexValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return {{"int", *i}};
  if (const auto* d = std::get_if<double>(&value)) {
    if (std::isfinite(*d)) return {{"double", *d}};
    return {{"double", std::isnan(*d) ? "nan" : *d > 0 ? "inf" : "-inf"}};
  }
  const auto& s = std::get<std::string>(value);
  ordered_json text{{"string", s}};
  try {
    text.dump();
    return text;
  } catch (const json::exception&) {
    return {{"hex", hex(s)}};
  }
}

IndexValue value_from(const json& v, const std::string& where) {
  check<Corrupt>(v.is_object() && v.size() == 1, "{}: not one typed value", where);
  const auto item = v.items().begin();
  const auto& x = item.value();
  if (item.key() == "int" && x.is_number_integer() &&
      (!x.is_number_unsigned() ||
       x.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}))
    return x.get<int64_t>();
  if (item.key() == "double" && x.is_number()) return x.get<double>();
  if (item.key() == "double" && x == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (item.key() == "double" && x == "inf") return std::numeric_limits<double>::infinity();
  if (item.key() == "double" && x == "-inf") return -std::numeric_limits<double>::infinity();
  if (item.key() == "string" && x.is_string()) return x.get<std::string>();
  if (item.key() == "hex" && x.is_string()) return unhex(x.get<std::string>(), where);
  fail<Corrupt>("{}: not an int, double, string or hex value", where);
}

// "name": {…} lines between braces.
template <class Map, class ToJson>
std::string section(const char* name, const Map& map, const ToJson& to_json) {
  std::string text = fmt::format("\"{}\": {{", name);
  bool first = true;
  for (const auto& [key, value] : map) {
    text += first ? "\n " : ",\n ";
    text += utf8_or_fail(ordered_json(key)) + ": " + utf8_or_fail(to_json(value));
    first = false;
  }
  return text + "\n}";
}

std::string digits_at(std::string_view text, size_t& at, const std::string& path) {
  at = text.find(kBeforeDigits);
  check<Corrupt>(
      at != std::string_view::npos && text.size() - at >= kBeforeDigits.size() + kZeros.size(),
      "{}: has no checksum of itself", path);
  at += kBeforeDigits.size();
  return std::string(text.substr(at, kZeros.size()));
}

void check_plain_name(const std::string& file, const std::string& path) {
  bool plain = !file.empty() && file.size() < 200 && file.front() != '.';
  for (char c : file)
    plain =
        plain && (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  check<Corrupt>(plain, "{}: '{}' is not a file name that we write", path, file);
}

IndexTensor tensor_from(const std::string& name, const json& info, const CheckpointIndex& index,
                        const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  IndexTensor t;
  t.slice.name = name;
  t.slice.global_shape = json_sizes(json_member(info, "shape", where), where, "shape");
  t.slice.offsets = json_sizes(json_member(info, "offsets", where), where, "offsets");
  t.slice.lengths = json_sizes(json_member(info, "lengths", where), where, "lengths");
  check<Corrupt>(t.slice == Slice::whole(name, t.slice.global_shape),
                 "{}: a part of a tensor, which layout '{}' does not have", where, index.layout);
  t.file = json_text(json_member(info, "file", where), where, "file");
  t.dtype = json_text(json_member(info, "dtype", where), where, "dtype");
  t.xxh3 = json_text(json_member(info, "xxh3", where), where, "xxh3");
  check<Corrupt>(t.file == place_of(name).file && index.files.count(t.file),
                 "{}: cannot lie in file '{}'", where, t.file);
  return t;
}

}  // namespace

TensorPlace place_of(const std::string& name) {
  constexpr std::string_view kModel = "model.";
  if (name.size() > kModel.size() && name.compare(0, kModel.size(), kModel) == 0)
    return {CheckpointIndex::kModelFile, name.substr(kModel.size())};
  return {CheckpointIndex::kStateFile, name};
}

std::string index_text(const CheckpointIndex& index) {
  std::string text = fmt::format("{{\"magic\": \"{}\",\n\"version\": {},\n{}{}\",\n", kMagic,
                                 CheckpointIndex::kVersion, kBeforeDigits, kZeros);
  text += fmt::format("\"step\": {},\n\"world\": {},\n\"layout\": \"{}\",\n", index.step,
                      index.world, index.layout);
  text += section("files", index.files, [](const IndexFile& f) {
    return ordered_json{{"size", f.size}, {"head", f.head}};
  });
  text += ",\n" + section("tensors", index.tensors, [](const IndexTensor& t) {
            return ordered_json{{"file", t.file},
                                {"dtype", t.dtype},
                                {"shape", t.slice.global_shape},
                                {"offsets", t.slice.offsets},
                                {"lengths", t.slice.lengths},
                                {"xxh3", t.xxh3}};
          });
  text += ",\n" + section("values", index.values, value_json) + "}\n";
  size_t at = 0;
  digits_at(text, at, CheckpointIndex::kFileName);
  text.replace(at, kZeros.size(), Checksum::of(text.data(), text.size()));
  return text;
}

CheckpointIndex parse_index(std::string_view text, const std::string& path) {
  const json root = parse_strict_json(text, path, 16);
  check<Corrupt>(json_text(json_member(root, "magic", path), path, "magic") == kMagic,
                 "{}: not the index of a checkpoint of ours", path);
  const int64_t version = json_size(json_member(root, "version", path), path, "version");
  check<UsageError>(version <= CheckpointIndex::kVersion,
                    "{}: written in version {} of the format; this program reads up to version {}: "
                    "use a newer trireme",
                    path, version, CheckpointIndex::kVersion);
  check<Corrupt>(version >= 1, "{}: version {} does not exist", path, version);

  size_t at = 0;
  const std::string digits = digits_at(text, at, path);
  std::string zeroed(text);
  zeroed.replace(at, kZeros.size(), kZeros);
  check<Corrupt>(Checksum::of(zeroed.data(), zeroed.size()) == digits,
                 "{}: its checksum does not fit its content", path);

  CheckpointIndex index;
  index.step = json_size(json_member(root, "step", path), path, "step");
  index.world = json_size(json_member(root, "world", path), path, "world");
  index.layout = json_text(json_member(root, "layout", path), path, "layout");
  check<Corrupt>(index.layout == "replicated", "{}: layout '{}' is not known", path, index.layout);
  for (const auto& [file, info] : json_member(root, "files", path).items()) {
    check_plain_name(file, path);
    index.files[file] = {
        static_cast<uint64_t>(json_size(json_member(info, "size", path), path, "size")),
        json_text(json_member(info, "head", path), path, "head")};
  }
  for (const auto& [name, info] : json_member(root, "tensors", path).items())
    index.tensors[name] = tensor_from(name, info, index, path);
  for (const auto& [name, info] : json_member(root, "values", path).items())
    index.values[name] = value_from(info, fmt::format("{}: value '{}'", path, name));
  return index;
}

}  // namespace trireme
