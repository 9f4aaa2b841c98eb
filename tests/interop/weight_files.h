// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/ranges.h>

#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/interop/pickles.h"
#include "trireme/interop/torch_file.h"
#include "trireme/interop/weights/array_reader.h"
#include "trireme/interop/weights/weight_source.h"

// Files of weights, as others write them, for tests of who reads them.
namespace trireme::interop::testing {

/// A tensor of float32: 0, 1, 2, … plus `first`, times `scale`.
struct Floats {
  std::string name;
  std::vector<int64_t> shape;
  float first = 0, scale = 1;

  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(element_count(shape)));
    for (size_t i = 0; i < out.size(); ++i) out[i] = scale * (first + static_cast<float>(i));
    return out;
  }
  std::string bytes() const {
    const auto list = values();
    return {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(float)};
  }
};

inline std::string safetensors_text(const std::vector<Floats>& tensors) {
  std::string header = "{", data;
  for (const Floats& t : tensors) {
    const size_t begin = data.size();
    data += t.bytes();
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", t.name, fmt::join(t.shape, ","), begin,
                          data.size());
  }
  header += "}";
  return little(header.size(), 8) + header + data;
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A state_dict, below these keys of dicts.
inline void write_pt(const std::string& path, const std::vector<Floats>& tensors,
                     const std::vector<std::string>& below = {}) {
  Tree tree;
  const NodeId weights = tree.ordered_dict();
  for (const Floats& t : tensors) tree.set(weights, t.name, tree.array("F32", t.shape));
  tree.root = weights;
  for (auto key = below.rbegin(); key != below.rend(); ++key) {
    const NodeId outer = tree.dict();
    tree.set(outer, *key, tree.root);
    tree.set(outer, "epoch", tree.integer(3));
    tree.root = outer;
  }
  std::vector<float> values;
  write_torch_file(path, tree, [&](size_t storage) -> std::span<const uint8_t> {
    values = tensors[storage].values();
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
  });
}

inline std::vector<std::string> names_of(const WeightSource& source) {
  std::vector<std::string> names;
  for (const SourceArray& a : source.arrays) names.push_back(a.array.name);
  return names;
}

inline std::vector<float> floats_of(const SourceArray& array) {
  ArrayReader reader;
  reader.verify(array.array);
  const auto bytes = reader.elements(array.array);
  std::vector<float> out(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

struct Gpt2Size {
  int64_t width = 2, vocab = 5, context = 4;
};

/// Two blocks of a GPT-2 as Hugging Face names and turns it.
inline std::vector<Floats> small_gpt2(const std::string& prefix = "transformer.",
                                      const Gpt2Size& size = {}) {
  const int64_t w = size.width;
  std::vector<Floats> all{{prefix + "wte.weight", {size.vocab, w}},
                          {prefix + "wpe.weight", {size.context, w}, 50}};
  for (const std::string n : {"0", "1"}) {
    const std::string h = prefix + "h." + n + ".";
    const float first = n == "0" ? 100 : 200;
    all.push_back({h + "ln_1.weight", {w}, first});
    all.push_back({h + "ln_1.bias", {w}, first + 2});
    all.push_back({h + "attn.c_attn.weight", {w, 3 * w}, first + 4});
    all.push_back({h + "attn.c_attn.bias", {3 * w}, first + 16});
    all.push_back({h + "attn.c_proj.weight", {w, w}, first + 22});
    all.push_back({h + "attn.c_proj.bias", {w}, first + 26});
    all.push_back({h + "ln_2.weight", {w}, first + 28});
    all.push_back({h + "ln_2.bias", {w}, first + 30});
    all.push_back({h + "mlp.c_fc.weight", {w, 4 * w}, first + 32});
    all.push_back({h + "mlp.c_fc.bias", {4 * w}, first + 48});
    all.push_back({h + "mlp.c_proj.weight", {4 * w, w}, first + 56});
    all.push_back({h + "mlp.c_proj.bias", {w}, first + 72});
  }
  all.push_back({prefix + "ln_f.weight", {w}, 90});
  all.push_back({prefix + "ln_f.bias", {w}, 92});
  return all;
}

}  // namespace trireme::interop::testing
