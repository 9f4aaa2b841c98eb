// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/torch_file.h"

#include <charconv>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/pickle/pickle_reader.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

constexpr int kNewestVersion = 10;  // of the archives that LibTorch and Python write today

// What torch.save wrote before 1.6: the pickle of the number 0x1950a86a20f9469cfc6c comes first.
constexpr uint8_t kOldMagic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// "archive" of "archive/data.pkl", which every file of torch's has once.
std::string archive_name(const ZipReader& zip, const std::string& where) {
  constexpr std::string_view kValues = "/data.pkl";
  std::string found;
  for (const ZipRecord& record : zip.records()) {
    const std::string_view name = record.name;
    if (!name.ends_with(kValues) || name.find('/') != name.size() - kValues.size()) continue;
    check<Corrupt>(found.empty(), "{}: holds two archives, '{}' and '{}'", where, shown(found),
                   shown(name));
    found = name.substr(0, name.size() - kValues.size());
  }
  check<UsageError>(!found.empty(),
                    "{}: is a zip archive without data.pkl: not a file of torch.save", where);
  return found;
}

void check_version(const ZipReader& zip, const std::string& archive, const std::string& where) {
  // torch.package and the oldest C++ archives keep it elsewhere.
  const ZipRecord* record = zip.find(archive + "/version");
  if (record == nullptr) record = zip.find(archive + "/.data/version");
  check<UsageError>(record != nullptr, "{}: has no version: not a file of torch.save", where);
  auto text = text_of(zip.bytes(*record));
  while (text.ends_with('\n')) text.remove_suffix(1);
  int version = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), version);
  check<Corrupt>(parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && version > 0,
                 "{}: '{}' for a version", where, shown(text));
  check<UsageError>(version <= kNewestVersion, "{}: is of version {}; we read up to {}", where,
                    version, kNewestVersion);
}

void check_byte_order(const ZipReader& zip, const std::string& archive, const std::string& where) {
  const ZipRecord* record = zip.find(archive + "/byteorder");
  if (record == nullptr) return;
  const auto order = text_of(zip.bytes(*record));
  check<UsageError>(
      order != "big",
      "{}: was written on a big-endian machine: open it in Python with torch.load and save it "
      "again on this one",
      where);
  check<Corrupt>(order == "little", "{}: '{}' for a byte order", where, shown(order));
}

}  // namespace

TorchFile::TorchFile(const std::string& path)
    : file_(path), bytes_(file_->bytes()), path_(path), where_(path) {
  read();
}

TorchFile::TorchFile(std::span<const uint8_t> bytes, std::string path, uint64_t begin)
    : bytes_(bytes), path_(std::move(path)), begin_(begin) {
  where_ = begin_ == 0 ? path_ : path_ + " from byte " + std::to_string(begin_);
  read();
}

void TorchFile::read() {
  check<UsageError>(
      bytes_.size() < sizeof kOldMagic ||
          std::memcmp(bytes_.data(), kOldMagic, sizeof kOldMagic) != 0,
      "{}: is of torch.save before PyTorch 1.6: open it in Python with torch.load and save it "
      "again with torch.save",
      where_);
  zip_.emplace(bytes_, where_);
  const std::string archive = archive_name(*zip_, where_);
  check_version(*zip_, archive, where_);
  check_byte_order(*zip_, archive, where_);
  const ZipRecord& values = *zip_->find(archive + "/data.pkl");
  zip_->verify(values);
  tree_ = read_pickle(zip_->bytes(values), where_);
  script_ = zip_->find(archive + "/constants.pkl") != nullptr;
  for (const Storage& storage : tree_.storages) {
    const ZipRecord* record = zip_->find(archive + "/data/" + storage.key);
    check<Corrupt>(record != nullptr, "{}: has no record for storage '{}'", where_,
                   shown(storage.key));
    const uint64_t size = zip_->bytes(*record).size();
    check<Corrupt>(size == storage.bytes, "{}: storage '{}' has {} bytes, its description {}",
                   where_, shown(storage.key), size, storage.bytes);
    storages_.push_back(record);
  }
}

NamedArray TorchFile::located(const Array& array, std::string name) const {
  NamedArray found{.name = std::move(name),
                   .dtype = array.dtype,
                   .shape = array.shape,
                   .strides = array.strides,
                   .file = path_};
  const uint64_t size = find_dtype(array.dtype)->size;
  const ZipRecord& record = *storages_[array.storage];
  found.begin = begin_ + record.begin;
  found.record = {begin_ + record.begin, begin_ + record.end, record.crc};
  if (element_count(array.shape) > 0) {
    // That this fits was checked when the tensor was read.
    uint64_t last = 0;
    for (size_t dim = 0; dim < array.shape.size(); ++dim)
      last += static_cast<uint64_t>((array.shape[dim] - 1) * array.strides[dim]);
    found.begin += static_cast<uint64_t>(array.offset) * size;
    found.end = found.begin + (last + 1) * size;
  } else {
    found.end = found.begin;
  }
  return found;
}

std::vector<NamedArray> TorchFile::arrays() const {
  std::vector<NamedArray> found;
  for (NamedNode& leaf : flatten(tree_, where_)) {
    const Node& node = tree_[leaf.node];
    if (node.kind == Kind::array)
      found.push_back(
          located(tree_.arrays[static_cast<size_t>(node.integer)], std::move(leaf.name)));
  }
  return found;
}

std::vector<NamedNode> TorchFile::values() const {
  auto leaves = flatten(tree_, where_);
  std::erase_if(leaves,
                [&](const NamedNode& leaf) { return tree_[leaf.node].kind == Kind::array; });
  return leaves;
}

void TorchFile::verify() const {
  for (const ZipRecord* record : storages_) zip_->verify(*record);
}

}  // namespace trireme::interop
