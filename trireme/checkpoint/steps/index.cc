// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/tiling.h"
#include "trireme/interop/strict_json.h"

namespace trireme {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMagic = "trireme.checkpoint";
constexpr std::string_view kBeforeDigits = "\"checksum\": \"xxh3:";
constexpr std::string_view kZeros = "0000000000000000";
constexpr size_t kMostNames = 1'000'000;  // of files, and of values

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

std::string list_text(const std::vector<int64_t>& list) {
  return fmt::format("[{}]", fmt::join(list, ","));
}

// "name": {…} lines between braces.
template <class Map, class ToJson>
std::string section(const char* name, const Map& map, const ToJson& to_json) {
  std::string text = fmt::format("\"{}\": {{", name);
  bool first = true;
  for (const auto& [key, value] : map) {
    text += first ? "\n " : ",\n ";
    text += utf8_or_fail(ordered_json(key)) + ": " + to_json(key, value);
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

Slice slice_from(const std::string& name, const std::vector<int64_t>& shape, const json& info,
                 const std::string& where) {
  Slice slice{name, shape, json_sizes(json_member(info, "offsets", where), where, "offsets"),
              json_sizes(json_member(info, "lengths", where), where, "lengths")};
  const std::string fault = fault_of(slice);
  check<Corrupt>(fault.empty(), "{}: {}", where, fault);
  return slice;
}

std::vector<int64_t> shape_from(const json& info, const std::string& where) {
  auto shape = json_sizes(json_member(info, "shape", where), where, "shape");
  int64_t numel = 1;
  for (int64_t dim : shape)
    check<Corrupt>(dim == 0 || !__builtin_mul_overflow(numel, dim, &numel),
                   "{}: a shape of more than 2^63 elements", where);
  return shape;
}

// `count` checksums of 16 digits each.
std::vector<uint64_t> blocks_from(const json& info, int64_t count, const std::string& where) {
  const std::string digits = json_text(json_member(info, "xxh3", where), where, "xxh3");
  check<Corrupt>(static_cast<int64_t>(digits.size() / 16) == count && digits.size() % 16 == 0,
                 "{}: has {} digits of checksums for {} blocks", where, digits.size(), count);
  std::vector<uint64_t> blocks(static_cast<size_t>(count));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const char* begin = digits.data() + i * 16;
    const auto [end, error] = std::from_chars(begin, begin + 16, blocks[i], 16);
    check<Corrupt>(error == std::errc() && end == begin + 16, "{}: a checksum is not hexadecimal",
                   where);
  }
  return blocks;
}

const json& parts_of(const json& info, const std::string& where) {
  const json& parts = json_member(info, "parts", where);
  check<Corrupt>(parts.is_array() && !parts.empty(), "{}: parts are not a list of parts", where);
  return parts;
}

IndexTensor tensor_from_version_1(const std::string& name, const json& info,
                                  const std::string& where) {
  IndexTensor t;
  IndexPart& part = t.parts.emplace_back();
  const auto shape = shape_from(info, where);
  part.slice = slice_from(name, shape, info, where);
  check<Corrupt>(part.slice == Slice::whole(name, shape),
                 "{}: a part of a tensor, which version 1 does not have", where);
  part.file = json_text(json_member(info, "file", where), where, "file");
  t.dtype = json_text(json_member(info, "dtype", where), where, "dtype");
  part.blocks = blocks_from(info, 1, where);
  check<Corrupt>(part.file == place_of(name).file, "{}: cannot lie in file '{}'", where, part.file);
  return t;
}

// Rising ranks below `world`: who held a part or a value in version 2.
std::vector<int64_t> ranks_from(const json& list, int64_t world, const std::string& where) {
  check<Corrupt>(list.is_array() && !list.empty(), "{}: ranks are not a list of ranks", where);
  std::vector<int64_t> ranks;
  for (const auto& item : list) {
    const int64_t rank = json_size(item, where, "a rank");
    check<Corrupt>(rank < world && (ranks.empty() || rank > ranks.back()),
                   "{}: ranks do not rise, or are not below {}", where, world);
    ranks.push_back(rank);
  }
  return ranks;
}

bool is_range_of_one_dim(const Slice& s) { return s.is_whole() || s.global_shape.size() == 1; }

IndexTensor tensor_from_version_2(const std::string& name, const json& info, int64_t world,
                                  const std::string& where) {
  IndexTensor t;
  t.dtype = json_text(json_member(info, "dtype", where), where, "dtype");
  const auto shape = shape_from(info, where);
  std::set<int64_t> holders;
  for (const auto& item : parts_of(info, where)) {
    IndexPart& part = t.parts.emplace_back();
    part.slice = slice_from(name, shape, item, where);
    part.file = json_text(json_member(item, "file", where), where, "file");
    part.blocks = blocks_from(item, 1, where);
    std::vector<int64_t> ranks;
    if (item.contains("ranks")) ranks = ranks_from(item["ranks"], world, where);
    for (int64_t rank : ranks)
      check<Corrupt>(holders.insert(rank).second, "{}: rank {} holds two parts", where, rank);
    check<Corrupt>(is_range_of_one_dim(part.slice) &&
                       (part.slice.is_whole() || (part.slice.numel() > 0 && !ranks.empty())),
                   "{}: a part that is neither whole nor a range of a tensor of one dim", where);
    check<Corrupt>(part.file == place_of(name, ranks.empty() ? -1 : ranks.front()).file,
                   "{}: cannot lie in file '{}'", where, part.file);
  }
  return t;
}

IndexTensor tensor_from_version_3(const std::string& name, const json& info, int64_t block,
                                  const std::string& where) {
  IndexTensor t;
  t.dtype = json_text(json_member(info, "dtype", where), where, "dtype");
  const int64_t each = safetensors_item_size(t.dtype);
  check<Corrupt>(each > 0, "{}: dtype '{}' is not one we read", where, t.dtype);
  const auto shape = shape_from(info, where);
  const std::string base = place_of(name).file;
  const std::string begin = base.substr(0, base.find('.'));
  std::set<std::string> files;
  for (const auto& item : parts_of(info, where)) {
    IndexPart& part = t.parts.emplace_back();
    part.slice = slice_from(name, shape, item, where);
    part.file = json_text(json_member(item, "file", where), where, "file");
    check<Corrupt>(part.file == base || part.file.starts_with(begin + "-"),
                   "{}: cannot lie in file '{}'", where, part.file);
    check<Corrupt>(files.insert(part.file).second, "{}: two parts in file '{}'", where, part.file);
    int64_t bytes = 0;
    check<Corrupt>(!__builtin_mul_overflow(part.slice.numel(), each, &bytes),
                   "{}: a part of more than 2^63 bytes", where);
    part.blocks = blocks_from(item, bytes / block + (bytes % block != 0), where);
  }
  return t;
}

}  // namespace

TensorPlace place_of(const std::string& name, int64_t rank, size_t box) {
  constexpr std::string_view kModel = "model.";
  const bool weight = name.size() > kModel.size() && name.starts_with(kModel);
  std::string file = weight ? "model" : "state";
  if (rank >= 0) file += fmt::format("-rank{:05}", rank);
  if (box > 0) file += fmt::format("-{}", box + 1);
  return {file + ".safetensors", weight ? name.substr(kModel.size()) : name};
}

bool is_layout_text(std::string_view layout) {
  return !layout.empty() && layout.size() <= 200 &&
         std::all_of(layout.begin(), layout.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::string index_text(const CheckpointIndex& index) {
  std::string text = fmt::format("{{\"magic\": \"{}\",\n\"version\": {},\n{}{}\",\n", kMagic,
                                 CheckpointIndex::kVersion, kBeforeDigits, kZeros);
  text +=
      fmt::format("\"step\": {},\n\"world\": {},\n\"layout\": {},\n\"block\": {},\n", index.step,
                  index.world, utf8_or_fail(ordered_json(index.layout)), index.block);
  text += section("files", index.files, [](const std::string&, const IndexFile& f) {
    return utf8_or_fail(ordered_json{{"size", f.size}, {"head", f.head}});
  });
  text += ",\n" + section("tensors", index.tensors, [](const std::string&, const IndexTensor& t) {
            std::string line = fmt::format("{{\"dtype\":\"{}\",\"shape\":{},\"parts\":[", t.dtype,
                                           list_text(t.shape()));
            for (const IndexPart& part : t.parts) {
              if (&part != &t.parts.front()) line += ',';
              line += fmt::format("{{\"file\":\"{}\",\"offsets\":{},\"lengths\":{},\"xxh3\":\"",
                                  part.file, list_text(part.slice.offsets),
                                  list_text(part.slice.lengths));
              for (uint64_t block : part.blocks) line += fmt::format("{:016x}", block);
              line += "\"}";
            }
            return line + "]}";
          });
  text += ",\n" + section("values", index.values, [](const std::string&, const auto& value) {
            return utf8_or_fail(value_json(value));
          });
  text += "}\n";
  size_t at = 0;
  digits_at(text, at, CheckpointIndex::kFileName);
  text.replace(at, kZeros.size(), Checksum::of(text.data(), text.size()));
  return text;
}

namespace {

/// Reads an index member by member: of the text of a large one there is no tree.
class IndexParser {
 public:
  IndexParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  CheckpointIndex parse() {
    const json root =
        for_each_json_member(text_, path_, 16, 2,
                             [this](const json& so_far, const std::string& section,
                                    const std::string& name, const json& info) {
                               if (!begun_)
                                 begin(so_far);  // its words come first, as they are written
                               if (section == "files") file(name, info);
                               if (section == "tensors") tensor(name, info);
                               if (section == "values") value(name, info);
                             });
    if (!begun_) begin(root);
    for (const char* section : {"files", "tensors", "values"})
      check<Corrupt>(json_member(root, section, path_).is_object(), "{}: '{}' is not an object",
                     path_, section);
    return std::move(index_);
  }

 private:
  /// All but the sections.
  void begin(const json& root) {
    begun_ = true;
    check<Corrupt>(json_text(json_member(root, "magic", path_), path_, "magic") == kMagic,
                   "{}: not the index of a checkpoint of ours", path_);
    const int64_t version = json_size(json_member(root, "version", path_), path_, "version");
    check<UsageError>(version <= CheckpointIndex::kVersion,
                      "{}: written in version {} of the format; this program reads up to version "
                      "{}: use a newer trireme",
                      path_, version, CheckpointIndex::kVersion);
    check<Corrupt>(version >= 1, "{}: version {} does not exist", path_, version);
    verify_checksum();

    index_.version = version;
    index_.step = json_size(json_member(root, "step", path_), path_, "step");
    index_.world = json_size(json_member(root, "world", path_), path_, "world");
    index_.layout = json_text(json_member(root, "layout", path_), path_, "layout");
    check<Corrupt>(version == 1 ? index_.layout == "replicated"
                                : is_layout_text(index_.layout) &&
                                      (version > 2 || index_.layout != "replicated"),
                   "{}: layout '{}' is not known in version {}", path_, index_.layout, version);
    check<Corrupt>(version == 1 || index_.world >= 1, "{}: saved by {} ranks", path_, index_.world);
    index_.block = version < 3 ? 0 : json_size(json_member(root, "block", path_), path_, "block");
    check<Corrupt>(version < 3 || index_.block > 0, "{}: blocks of no bytes", path_);
  }

  void verify_checksum() const {
    size_t at = 0;
    const std::string digits = digits_at(text_, at, path_);
    const std::string_view rest = text_.substr(at + kZeros.size());
    Checksum checksum;
    checksum.add(text_.data(), at);
    checksum.add(kZeros.data(), kZeros.size());
    checksum.add(rest.data(), rest.size());
    check<Corrupt>(checksum.hex() == digits,
                   "{}: its checksum does not fit its content: it is {}; it says {}", path_,
                   checksum.hex(), digits);
  }

  void file(const std::string& name, const json& info) {
    check_plain_name(name, path_);
    IndexFile file{
        static_cast<uint64_t>(json_size(json_member(info, "size", path_), path_, "size")),
        json_text(json_member(info, "head", path_), path_, "head")};
    check_first_of_name(index_.files.emplace(name, std::move(file)).second, name, path_);
    check<Corrupt>(index_.files.size() <= kMostNames, "{}: more than {} files", path_, kMostNames);
  }

  void tensor(const std::string& name, const json& info) {
    const std::string where = fmt::format("{}: tensor '{}'", path_, name);
    check_first_of_name(!index_.tensors.contains(name), name, path_);
    const auto& t = index_.tensors[name] =
        index_.version == 1   ? tensor_from_version_1(name, info, where)
        : index_.version == 2 ? tensor_from_version_2(name, info, index_.world, where)
                              : tensor_from_version_3(name, info, index_.block, where);
    for (const auto& part : t.parts)
      check<Corrupt>(index_.files.count(part.file), "{}: file '{}' is not listed", where,
                     part.file);
    std::vector<const Slice*> slices;
    for (const auto& part : t.parts) slices.push_back(&part.slice);
    const std::string fault = fault_in_tiling(t.shape(), slices);
    check<Corrupt>(fault.empty(), "{}: {}", where, fault);
  }

  void value(const std::string& name, const json& info) {
    const std::string where = fmt::format("{}: value '{}'", path_, name);
    json value = info;
    if (index_.version == 2 && value.is_object() && value.contains("ranks")) {
      ranks_from(value["ranks"], index_.world, where);
      value.erase("ranks");
    }
    check_first_of_name(index_.values.emplace(name, value_from(value, where)).second, name, path_);
    check<Corrupt>(index_.values.size() <= kMostNames, "{}: more than {} values", path_,
                   kMostNames);
  }

  const std::string_view text_;
  const std::string& path_;
  bool begun_ = false;
  CheckpointIndex index_;
};

}  // namespace

CheckpointIndex parse_index(std::string_view text, const std::string& path) {
  return IndexParser(text, path).parse();
}

}  // namespace trireme
