// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/file_log.h"
#include "trireme/base/check.h"

// A folder as a disk may show it after its power was cut, made from what stood there before and
// from a record of the calls since (base/file/file_faults.h).
namespace trireme::testing {

enum class Survives {
  synced,  // only what was synced: bytes by a sync of their file, names by one of their folder
  names,  // … and every name, also of files whose bytes are lost: the worst order of writing back
  some    // … and of what was not synced a part that a random seed chooses
};

/// POSIX promises no more than this: a file's bytes are durable after a sync of that file, a name
/// (made, renamed, removed) after a sync of the folder that holds it, and nothing else is ordered.
class DiskModel {
 public:
  /// What is in `root` now, all of it durable.
  explicit DiskModel(const std::string& root)
      : root_(std::filesystem::canonical(root).string()), top_(take(root_)) {}

  /// One call of the record whose bytes are in `data`. Calls elsewhere, calls that failed and those
  /// that change nothing are passed over.
  void apply(const LoggedCall& call, const std::string& data) {
    if (call.result < 0) return;
    if (call.kind == "create") {
      create(call);
    } else if (call.kind == "mkdir") {
      change(call.path, add(Node{true, {}, {}, {}, {}, {}}));
    } else if (call.kind == "unlink" || call.kind == "rmdir") {
      change(call.path, std::nullopt);
    } else if (call.kind == "rename" || call.kind == "exchange") {
      rename(call);
    } else if (call.kind == "write" || call.kind == "pwrite") {
      if (Node* file = find(call.path)) write(*file, call, data);
    } else if (call.kind == "allocate") {
      if (Node* file = find(call.path))
        file->bytes.resize(std::max(file->bytes.size(), static_cast<size_t>(call.offset)));
    } else if (call.kind == "truncate") {
      if (Node* file = find(call.path)) file->bytes.resize(static_cast<size_t>(call.offset));
    } else if (call.syncs()) {
      if (Node* node = find(call.path)) {
        node->synced_bytes = node->bytes;
        node->synced_names = node->names;
        node->pending.clear();
      }
    }
  }

  /// Makes the folder `into` as it may be found.
  void rebuild(const std::string& into, Survives survives, unsigned seed = 0) const {
    std::mt19937 random(seed);
    put(top_, into, survives, random);
  }

 private:
  using Names = std::map<std::string, size_t>;
  using Change = std::vector<std::pair<std::string, std::optional<size_t>>>;  // nullopt: removed
  struct Node {
    bool folder = false;
    std::string bytes, synced_bytes;
    Names names, synced_names;
    std::vector<Change> pending;  // since the folder was synced, in order
  };
  struct Place {
    Node* folder = nullptr;  // null: not on this disk
    std::string name;
  };

  size_t add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  size_t take(const std::string& path) {
    Node node;
    node.folder = std::filesystem::is_directory(path);
    if (node.folder) {
      for (const auto& item : std::filesystem::directory_iterator(path))
        node.names[item.path().filename().string()] = take(item.path().string());
      node.synced_names = node.names;
    } else {
      std::ifstream in(path, std::ios::binary);
      node.bytes.assign(std::istreambuf_iterator<char>(in), {});
      node.synced_bytes = node.bytes;
    }
    return add(std::move(node));
  }

  Node* find(const std::string& path) {
    if (path == root_) return &nodes_[top_];
    const Place place = place_of(path);
    if (!place.folder) return nullptr;
    const auto found = place.folder->names.find(place.name);
    return found == place.folder->names.end() ? nullptr : &nodes_[found->second];
  }

  Place place_of(const std::string& path) {
    if (!path.starts_with(root_ + "/")) return {};
    const std::filesystem::path inside = path.substr(root_.size() + 1);
    size_t at = top_;
    for (const auto& part : inside.parent_path()) {
      const auto found = nodes_[at].names.find(part.string());
      check<Error>(found != nodes_[at].names.end(), "the record leaves out how {} was made", path);
      at = found->second;
    }
    return {&nodes_[at], inside.filename().string()};
  }

  static void change(Node& folder, const Change& changes) {
    apply_to(folder.names, changes);
    folder.pending.push_back(changes);
  }
  void change(const std::string& path, std::optional<size_t> node) {
    if (const Place place = place_of(path); place.folder)
      change(*place.folder, {{place.name, node}});
  }
  static void apply_to(Names& names, const Change& changes) {
    for (const auto& [name, node] : changes)
      if (node)
        names[name] = *node;
      else
        names.erase(name);
  }

  void create(const LoggedCall& call) {
    if (Node* file = find(call.path)) {
      if (call.truncates) file->bytes.clear();
    } else {
      change(call.path, add(Node{}));
    }
  }

  void rename(const LoggedCall& call) {
    const Place from = place_of(call.path), to = place_of(call.to);
    check<Error>((from.folder == nullptr) == (to.folder == nullptr), "{} left the disk", call.path);
    if (!from.folder) return;
    std::optional<size_t> other;
    if (call.kind == "exchange") other = to.folder->names.at(to.name);
    const size_t node = from.folder->names.at(from.name);
    if (from.folder == to.folder) return change(*to.folder, {{from.name, other}, {to.name, node}});
    change(*from.folder, {{from.name, other}});
    change(*to.folder, {{to.name, node}});
  }

  static void write(Node& file, const LoggedCall& call, const std::string& data) {
    const size_t offset = static_cast<size_t>(call.offset), n = static_cast<size_t>(call.result);
    check<Error>(call.result == 0 || call.data_at >= 0, "{} was not recorded", call.path);
    if (file.bytes.size() < offset + n) file.bytes.resize(offset + n);
    if (n) file.bytes.replace(offset, n, data, static_cast<size_t>(call.data_at), n);
  }

  void put(size_t at, const std::string& into, Survives survives, std::mt19937& random) const {
    const Node& node = nodes_[at];
    if (!node.folder) {
      const bool all = survives == Survives::some && random() % 2;
      std::ofstream(into, std::ios::binary) << (all ? node.bytes : node.synced_bytes);
      return;
    }
    Names names = survives == Survives::names ? node.names : node.synced_names;
    if (survives == Survives::some)
      for (const Change& change : node.pending)
        if (random() % 2) apply_to(names, change);
    std::filesystem::create_directory(into);
    for (const auto& [name, child] : names) put(child, into + "/" + name, survives, random);
  }

  std::string root_;
  std::vector<Node> nodes_;  // before top_, which is made of them
  size_t top_;
};

/// A model of `root` to which the first `count` calls of a record can be applied, in turn.
struct RecordedDisk {
  RecordedDisk(const std::string& root, const std::string& record)
      : before(root), record_(record) {}
  void read() {
    calls = read_file_log(record_);
    data.clear();
    if (std::filesystem::exists(record_ + ".data")) data = read_file(record_ + ".data");
  }
  DiskModel after(size_t count) const {
    DiskModel disk = before;
    for (size_t i = 0; i < count; ++i) disk.apply(calls[i], data);
    return disk;
  }

  DiskModel before;
  std::vector<LoggedCall> calls;
  std::string data;

 private:
  std::string record_;
};

}  // namespace trireme::testing
