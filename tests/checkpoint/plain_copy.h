// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/save/save_plan.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/load_plan.h"
#include "trireme/interop/safetensors_header.h"

// What the plans of saving and loading are compared with: the same on whole tensors of numbers,
// element by element.
namespace trireme::test {

using Sizes = std::vector<int64_t>;

inline int64_t below(std::mt19937& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

/// A tensor whose every element is another number, from `first` on.
inline Sizes numbers(const Sizes& shape, int64_t first = 1000) {
  Sizes whole(static_cast<size_t>(Slice::whole("", shape).numel()));
  std::iota(whole.begin(), whole.end(), first);
  return whole;
}

/// The elements of a slice, out of the whole tensor: element by element.
inline Sizes values_of(const Slice& s, const Sizes& whole) {
  Sizes at{0};
  for (size_t d = 0; d < s.global_shape.size(); ++d) {
    Sizes next;
    for (int64_t row : at)
      for (int64_t i = 0; i < s.lengths[d]; ++i)
        next.push_back(row * s.global_shape[d] + s.offsets[d] + i);
    at = std::move(next);
  }
  if (s.flat) at = Sizes(at.begin() + s.flat->begin, at.begin() + s.flat->begin + s.flat->count);
  Sizes values;
  for (int64_t i : at) values.push_back(whole[static_cast<size_t>(i)]);
  return values;
}

/// What a load does, on numbers.
inline Sizes loaded(const IndexTensor& saved, const std::vector<Sizes>& parts,
                    const Slice& wanted) {
  Sizes got(static_cast<size_t>(wanted.numel()), -1);
  for (const Copy& copy : plan_load(saved, wanted)) {
    EXPECT_LE(copy.from_end(), static_cast<int64_t>(parts[copy.part].size()));
    for_each_run(copy, [&](int64_t from, int64_t to, int64_t run) {
      for (int64_t i = 0; i < run; ++i) {
        auto& place = got.at(static_cast<size_t>(to + i));
        EXPECT_EQ(place, -1) << "written twice";
        place = parts[copy.part].at(static_cast<size_t>(from + i));
      }
    });
  }
  return got;
}

/// Numbers as a file has them: in elements of 4 or 8 bytes.
inline std::string bytes_of_numbers(const Sizes& values, const std::string& dtype) {
  const auto each = static_cast<size_t>(safetensors_item_size(dtype));
  std::string bytes(values.size() * each, '\0');
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(&bytes[i * each], &values[i], each);
  return bytes;
}

/// The files of a plan, as its ranks write them and as their headers describe them.
class WrittenFiles {
 public:
  /// `values(name)` is a whole tensor.
  WrittenFiles(const SavePlan& plan, const std::vector<HeldState>& ranks,
               const std::function<const Sizes&(const std::string&)>& values)
      : plan_(plan) {
    std::vector<std::string> files;
    std::vector<std::vector<int>> times;
    for (const PlannedFile& f : plan.files) {
      files.push_back(f.head + std::string(static_cast<size_t>(f.size) - f.head.size(), '\0'));
      times.emplace_back(static_cast<size_t>(f.size), 0);
      std::fill_n(times.back().begin(), f.head.size(), 1);
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      std::map<size_t, std::string> held;  // by tensor
      for (const PlannedWrite& w : plan.writes[r]) {
        const HeldTensor& t = ranks[r].tensors.at(w.tensor);
        std::string& bytes = held[w.tensor];
        if (bytes.empty())
          bytes = bytes_of_numbers(values_of(t.slice, values(t.slice.name)), t.dtype);
        for (int64_t i = 0; i < w.bytes; ++i) {
          const auto to = static_cast<size_t>(w.at + i);
          files[w.file].at(to) = bytes.at(static_cast<size_t>(w.from + i));
          ++times[w.file].at(to);
        }
      }
    }
    for (const auto& t : times) EXPECT_EQ(std::count(t.begin(), t.end(), 1), std::ssize(t));
    for (size_t f = 0; f < files.size(); ++f) {
      const auto* begin = reinterpret_cast<const uint8_t*>(files[f].data());
      const std::string& name = plan.files[f].name;
      for (const interop::NamedArray& array :
           interop::read_safetensors_header({begin, files[f].size()}, name).arrays)
        data_[{name, array.name}] = files[f].substr(array.begin, array.end - array.begin);
    }
  }

  /// What the files hold of a tensor, whose parts are boxes, each in a file of its own.
  std::vector<Sizes> parts_of(const std::string& name) const {
    const IndexTensor& saved = plan_.index.tensors.at(name);
    const auto each = static_cast<size_t>(safetensors_item_size(saved.dtype));
    std::vector<Sizes> parts;
    std::set<std::string> files;
    for (const IndexPart& part : saved.parts) {
      EXPECT_TRUE(files.insert(part.file).second) << "a name twice in " << part.file;
      EXPECT_FALSE(part.slice.flat);
      const std::string& bytes = data_.at({part.file, place_of(name).key});
      Sizes& values = parts.emplace_back(static_cast<size_t>(part.slice.numel()));
      EXPECT_EQ(bytes.size(), values.size() * each);
      for (size_t i = 0; i < values.size(); ++i) std::memcpy(&values[i], &bytes.at(i * each), each);
    }
    return parts;
  }

 private:
  const SavePlan& plan_;
  std::map<std::pair<std::string, std::string>, std::string> data_;  // by file and name in it
};

}  // namespace trireme::test
