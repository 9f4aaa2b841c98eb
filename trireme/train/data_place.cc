// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/data_place.h"

#include <array>
#include <functional>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"
#include "trireme/train/rank_zero.h"

namespace trireme {
namespace {

using OriginVisitor = std::function<void(const char* name, int64_t& value)>;

void visit_origin(DataOrigin& origin, const OriginVisitor& visit) {
  visit("data.step", origin.step);
  visit("data.epoch", origin.at.epoch);
  visit("data.sample", origin.at.sample);
  visit("data.number", origin.number);
}

struct Wire {
  std::string folder;
  bool known = false;
  std::array<int64_t, 4> origin = {};
  int64_t samples = 0;
  std::string contents;
  TRIREME_FIELDS(folder, known, origin, samples, contents)
};

/// `file`: of the index, for messages.
Wire place_in(const CheckpointIndex& index, std::string folder, const std::string& file) {
  Wire wire;
  wire.folder = std::move(folder);
  DataOrigin origin;
  size_t found = 0;
  visit_origin(origin, [&](const char* name, int64_t& value) {
    const auto it = index.values.find(name);
    if (it == index.values.end()) return;
    const auto* number = std::get_if<int64_t>(&it->second);
    check<Corrupt>(number != nullptr, "{}: '{}' is no integer", file, name);
    value = *number;
    wire.origin[found++] = value;
  });
  wire.known = found == wire.origin.size();
  try {
    origin.check_possible();
  } catch (const Corrupt& e) {
    fail<Corrupt>("{}: {}", file, e.what());
  }
  for (const auto& [name, value] : index.values)
    if (const auto* number = std::get_if<int64_t>(&value);
        number && name.ends_with("train.samples_per_step"))
      wire.samples = *number;
  if (const auto it = index.values.find(kDataContents); it != index.values.end()) {
    const auto* text = std::get_if<std::string>(&it->second);
    check<Corrupt>(text != nullptr, "{}: '{}' is no text", file, kDataContents);
    wire.contents = *text;
  }
  return wire;
}

Wire read_place(const std::string& path) {
  std::string_view plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.remove_suffix(1);
  const std::string folder = find_checkpoint(std::string(plain));
  const std::string file = folder + "/" + CheckpointIndex::kFileName;
  CheckpointIndex index;
  try {
    index = parse_index(read_file(file, size_t{1} << 28), file);
  } catch (const Error&) {
    Wire unread;  // the load says what is wrong, and which checkpoint to take instead
    unread.folder = folder;
    return unread;
  }
  return place_in(index, folder, file);
}

DataPlace as_place(const Wire& wire) {
  DataPlace place{wire.folder, {}, wire.samples, wire.contents};
  if (!wire.known) return place;
  size_t i = 0;
  visit_origin(place.origin.emplace(),
               [&](const char*, int64_t& value) { value = wire.origin[i++]; });
  return place;
}

}  // namespace

DataPlace data_place_of(const std::string& path, const Group& world) {
  return as_place(decode<Wire>(from_rank_0(world, [&] { return encode(read_place(path)); })));
}

DataPlace data_place_of(const HeldStep& step) {
  return as_place(place_in(step.index(), step.name(), step.name()));
}

void set_data_origin(DataOrigin& origin, const std::function<int64_t(const char*)>& value_of) {
  visit_origin(origin, [&](const char* name, int64_t& value) { value = value_of(name); });
  origin.check_possible();
}

void show_data_origin(StateVisitor& visitor, DataOrigin origin) {
  visit_origin(origin, [&](const char* name, int64_t& value) { visitor.value(name, value); });
}

std::vector<std::string> data_origin_names() {
  std::vector<std::string> names;
  DataOrigin none;
  visit_origin(none, [&](const char* name, int64_t&) { names.emplace_back(name); });
  return names;
}

}  // namespace trireme
