// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/safetensors_head.h"

// Steps written without LibTorch, for tests of what reads them.
namespace trireme::test {

struct Box {
  std::vector<int64_t> offsets, lengths;
};

struct WrittenTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;            // of all of it
  std::vector<Box> boxes = {};  // box i lies in the file of rank i; none: all ranks held it
};

template <class T>
std::string bytes_of_list(const std::vector<T>& list) {
  return std::string(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
}

/// Floats 0, 1, 2, … times `scale`.
inline std::string counted(int64_t count, float scale = 1) {
  std::vector<float> list(static_cast<size_t>(count));
  for (size_t i = 0; i < list.size(); ++i) list[i] = scale * static_cast<float>(i);
  return bytes_of_list(list);
}

inline std::string bytes_of_box(const WrittenTensor& t, const Box& box) {
  const auto each = static_cast<size_t>(safetensors_item_size(t.dtype));
  std::string bytes;
  std::vector<int64_t> at(t.shape.size(), 0);
  const int64_t count = Slice{"", t.shape, box.offsets, box.lengths}.numel();
  for (int64_t i = 0; i < count; ++i) {
    int64_t element = 0;
    for (size_t d = 0; d < at.size(); ++d) element = element * t.shape[d] + box.offsets[d] + at[d];
    bytes += t.bytes.substr(static_cast<size_t>(element) * each, each);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.lengths[d]) break;
      at[d] = 0;
    }
  }
  return bytes;
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A step of version 3 in a run folder, which is made if need be; `latest` names it. The folder.
inline std::string write_test_step(const std::string& run_dir, int64_t step,
                                   const std::vector<WrittenTensor>& tensors,
                                   const std::map<std::string, IndexValue>& values = {},
                                   int64_t world = 1) {
  const std::string folder = run_dir + "/" + step_folder_name(step);
  std::filesystem::create_directories(folder);
  CheckpointIndex index;
  index.step = step;
  index.world = world;
  index.layout = world == 1 ? "replicated" : "zero stage 3";
  index.values = values;
  std::map<std::string, std::map<std::string, std::pair<SafetensorsTensor, std::string>>> files;
  for (const WrittenTensor& t : tensors) {
    const bool split = !t.boxes.empty();
    const std::vector<Box> whole{{std::vector<int64_t>(t.shape.size(), 0), t.shape}};
    const auto& boxes = split ? t.boxes : whole;
    IndexTensor& in_index = index.tensors[t.name];
    in_index.dtype = t.dtype;
    for (size_t i = 0; i < boxes.size(); ++i) {
      const auto place = place_of(t.name, split ? static_cast<int64_t>(i) : -1);
      const std::string bytes = split ? bytes_of_box(t, boxes[i]) : t.bytes;
      IndexPart part{{t.name, t.shape, boxes[i].offsets, boxes[i].lengths}, place.file};
      for (size_t at = 0; at < bytes.size(); at += CheckpointIndex::kBlock)
        part.blocks.push_back(Checksum::number_of(
            bytes.data() + at, std::min<size_t>(bytes.size() - at, CheckpointIndex::kBlock)));
      in_index.parts.push_back(part);
      files[place.file][place.key] = {{place.key, t.dtype, boxes[i].lengths}, bytes};
    }
  }
  for (const auto& [name, content] : files) {
    std::vector<SafetensorsTensor> order;
    for (const auto& [key, item] : content) order.push_back(item.first);
    std::sort(order.begin(), order.end(), comes_before);
    std::string text = safetensors_head(order, {{"format", "pt"}}, name);
    const std::string head = Checksum::of(text.data(), text.size());
    for (const auto& t : order) text += content.at(t.name).second;
    write_text(folder + "/" + name, text);
    index.files[name] = {text.size(), head};
  }
  write_text(folder + "/" + CheckpointIndex::kFileName, index_text(index));
  write_text(run_dir + "/latest", step_folder_name(step) + "\n");
  return folder;
}

/// Changes the byte `from_end` before the end of a file (1: the last).
inline void flip_byte(const std::string& path, size_t from_end) {
  std::string text = read_file(path);
  text.at(text.size() - from_end) ^= 1;
  write_text(path, text);
}

/// An index with other words in it, and a checksum that fits.
inline void rewrite_index(const std::string& folder, const std::string& from,
                          const std::string& to) {
  const std::string path = folder + "/" + CheckpointIndex::kFileName;
  std::string text = read_file(path);
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  const size_t digits = text.find("xxh3:") + 5;
  text.replace(digits, 16, std::string(16, '0'));
  text.replace(digits, 16, Checksum::of(text.data(), text.size()));
  write_text(path, text);
}

}  // namespace trireme::test
