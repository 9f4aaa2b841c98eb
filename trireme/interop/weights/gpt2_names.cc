// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weights/gpt2_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::interop {
namespace {

struct Pair {
  std::string_view ours, theirs;
  bool transposed;
};
// Inside of a block, and outside of the blocks.
constexpr Pair kOfBlock[] = {
    {"ln1.weight", "ln_1.weight", false},
    {"ln1.bias", "ln_1.bias", false},
    {"attn.qkv.weight", "attn.c_attn.weight", true},
    {"attn.qkv.bias", "attn.c_attn.bias", false},
    {"attn.proj.weight", "attn.c_proj.weight", true},
    {"attn.proj.bias", "attn.c_proj.bias", false},
    {"ln2.weight", "ln_2.weight", false},
    {"ln2.bias", "ln_2.bias", false},
    {"mlp.up.weight", "mlp.c_fc.weight", true},
    {"mlp.up.bias", "mlp.c_fc.bias", false},
    {"mlp.down.weight", "mlp.c_proj.weight", true},
    {"mlp.down.bias", "mlp.c_proj.bias", false},
};
constexpr std::string_view kOutside[] = {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"};
constexpr std::string_view kTransformer = "transformer.", kBlocks = "blocks.", kH = "h.",
                           kHead = "head.weight", kLmHead = "lm_head.weight",
                           kFirst = "h.0.attn.c_attn.weight";

struct InBlock {
  std::string_view number, rest;
};
std::optional<InBlock> in_block(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == name.npos || dot == 0 ||
      !std::all_of(name.begin(), name.begin() + static_cast<long>(dot),
                   [](char c) { return c >= '0' && c <= '9'; }))
    return {};
  return InBlock{name.substr(0, dot), name.substr(dot + 1)};
}

// What is before "h.0.…" and "wte.…" in a file's names: "transformer.", "", "gpt.transformer.".
std::optional<std::string> prefix_of(const WeightSource& source) {
  for (const SourceArray& a : source.arrays) {
    const std::string& name = a.array.name;
    if (!name.ends_with(kFirst)) continue;
    const std::string prefix = name.substr(0, name.size() - kFirst.size());
    if (prefix.empty() || prefix.ends_with('.')) return prefix;
  }
  return {};
}

void transpose(SourceArray& a) {
  const auto turn = [&](std::vector<int64_t>& two) {
    check<UsageError>(two.size() == 2, "{} is no matrix, as a layer of GPT-2 is", described(a));
    std::swap(two[0], two[1]);
  };
  turn(a.array.shape);
  for (Box& box : a.array.boxes) {
    turn(box.offsets), turn(box.lengths);
    turn(box.at.shape), turn(box.at.strides);
  }
  a.transposed = true;
}

// "attn.bias" and "attn.masked_bias" of a block are masks.
bool is_mask(std::string_view theirs) {
  const auto place = in_block(theirs, kH);
  return place && (place->rest == "attn.bias" || place->rest == "attn.masked_bias");
}

}  // namespace

std::optional<Gpt2Name> gpt2_name(const std::string& ours) {
  if (ours == kHead) return Gpt2Name{std::string(kLmHead)};
  for (const std::string_view name : kOutside)
    if (ours == name) return Gpt2Name{fmt::format("{}{}", kTransformer, name)};
  if (const auto place = in_block(ours, kBlocks))
    for (const Pair& pair : kOfBlock)
      if (place->rest == pair.ours)
        return Gpt2Name{fmt::format("{}{}{}.{}", kTransformer, kH, place->number, pair.theirs),
                        pair.transposed};
  return {};
}

std::optional<Gpt2Name> name_of_gpt2(const std::string& theirs) {
  if (theirs == kLmHead) return Gpt2Name{std::string(kHead)};
  std::string_view name = theirs;
  if (name.starts_with(kTransformer)) name.remove_prefix(kTransformer.size());
  for (const std::string_view outside : kOutside)
    if (name == outside) return Gpt2Name{std::string(name)};
  if (const auto place = in_block(name, kH))
    for (const Pair& pair : kOfBlock)
      if (place->rest == pair.theirs)
        return Gpt2Name{fmt::format("{}{}.{}", kBlocks, place->number, pair.ours), pair.transposed};
  return {};
}

bool has_gpt2_names(const WeightSource& source) { return prefix_of(source).has_value(); }

void take_gpt2_names(WeightSource& source, TiedHead tied,
                     const std::function<bool(const BoxedArray&, const BoxedArray&)>& same) {
  const auto prefix = prefix_of(source);
  check<UsageError>(prefix.has_value(), "{} has no tensor '{}': its names are not those of GPT-2",
                    source.path, fmt::format("{}{}", kTransformer, kFirst));
  std::string outer = *prefix;
  if (outer.ends_with(kTransformer)) outer.resize(outer.size() - kTransformer.size());
  size_t masks = 0;
  std::erase_if(source.arrays, [&](const SourceArray& a) {
    const bool mask = a.array.name.starts_with(*prefix) &&
                      is_mask(std::string_view(a.array.name).substr(prefix->size()));
    masks += mask;
    return mask;
  });
  for (SourceArray& a : source.arrays) {
    const std::string& name = a.array.name;
    std::optional<Gpt2Name> ours;
    if (name == outer + std::string(kLmHead))
      ours = Gpt2Name{std::string(kHead)};
    else if (name.starts_with(*prefix))
      ours = name_of_gpt2(name.substr(prefix->size()));
    if (!ours) continue;
    if (ours->transposed) transpose(a);
    a.array.name = ours->name;
  }
  sort_by_name(source);
  source.notes.push_back(
      fmt::format("its names are those of GPT-2: they are mapped, and the layers' matrices "
                  "transposed{}",
                  masks > 0 ? fmt::format("; {} masks were left", masks) : ""));
  const SourceArray* embedding = source.find("wte.weight");
  const SourceArray* head = source.find(std::string(kHead));
  if (embedding == nullptr) return;
  if (tied == TiedHead::copied && head == nullptr) {
    SourceArray copy = *embedding;
    copy.array.name = kHead;
    source.arrays.push_back(std::move(copy));
    sort_by_name(source);
    source.notes.push_back("it has no head of its own: head.weight begins as wte.weight");
  } else if (tied == TiedHead::dropped && head != nullptr && same(embedding->array, head->array)) {
    source.arrays.erase(source.arrays.begin() + (head - source.arrays.data()));
    source.notes.push_back("its head is tied to the token embedding");
  }
}

std::string gpt2_config_json(const Gpt2Config& c) {
  const nlohmann::ordered_json json{
      {"model_type", "gpt2"},
      {"architectures", nlohmann::ordered_json::array({"GPT2LMHeadModel"})},
      {"n_layer", c.layers},
      {"n_embd", c.width},
      {"n_head", c.heads},
      {"n_positions", c.context},
      {"vocab_size", c.vocab},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", 1e-5},
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"tie_word_embeddings", c.tied_head},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr}};
  return json.dump(2) + "\n";
}

}  // namespace trireme::interop
