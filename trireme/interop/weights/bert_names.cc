// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weights/bert_names.h"

#include <fmt/format.h>

#include <string_view>

namespace trireme::interop {
namespace {

constexpr std::string_view kBert = "bert.", kEmbeddings = "embeddings.",
                           kQuery = "encoder.layer.0.attention.self.query.weight";

/// What is before "embeddings.…" and "encoder.…": "bert.", "", "model.bert.".
std::optional<std::string> before_bert(const WeightSource& source) {
  for (const SourceArray& a : source.arrays) {
    const std::string& name = a.array.name;
    if (!name.ends_with(kQuery)) continue;
    const std::string prefix = name.substr(0, name.size() - kQuery.size());
    if (prefix.empty() || prefix.ends_with('.')) return prefix;
  }
  return {};
}

bool replace_end(std::string& name, std::string_view from, std::string_view to) {
  if (!name.ends_with(from)) return false;
  name.replace(name.size() - from.size(), from.size(), to);
  return true;
}

}  // namespace

bool has_bert_names(const WeightSource& source) { return before_bert(source).has_value(); }

void take_bert_names(WeightSource& source) {
  const std::string prefix = before_bert(source).value_or(std::string(kBert));
  const std::string positions = fmt::format("{}{}position_ids", prefix, kEmbeddings);
  const size_t left =
      std::erase_if(source.arrays, [&](const auto& a) { return a.array.name == positions; });
  size_t norms = 0, prefixed = 0;
  for (SourceArray& a : source.arrays) {
    std::string& name = a.array.name;
    norms += replace_end(name, "LayerNorm.gamma", "LayerNorm.weight") ||
             replace_end(name, "LayerNorm.beta", "LayerNorm.bias");
    if (prefix == kBert || !name.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(name).substr(prefix.size());
    if (!rest.starts_with(kEmbeddings) && !rest.starts_with("encoder.") &&
        !rest.starts_with("pooler."))
      continue;
    name = fmt::format("{}{}", kBert, rest);
    ++prefixed;
  }
  sort_by_name(source);
  std::string changed;
  if (prefixed > 0) changed += "; 'bert.' was put before them";
  if (norms > 0) changed += "; gamma and beta of LayerNorm are weight and bias here";
  if (left > 0) changed += "; the numbers of positions were left";
  if (!changed.empty()) source.notes.push_back("its names are those of BERT" + changed);
}

}  // namespace trireme::interop
