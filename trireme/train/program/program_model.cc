// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/program_model.h"

#include <cmath>
#include <map>
#include <mutex>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/layers/dropout.h"
#include "trireme/models/init.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/recompute/recompute.h"

namespace trireme {
namespace {

struct PathPart : torch::nn::Module {};

/// Registers `module` at a dotted path below `root`.
void register_at(torch::nn::Module& root, const std::string& path,
                 std::shared_ptr<torch::nn::Module> module) {
  torch::nn::Module* parent = &root;
  size_t begin = 0;
  for (size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string part = path.substr(begin, dot - begin);
    std::shared_ptr<torch::nn::Module> next;
    for (const auto& child : parent->named_children())
      if (child.key() == part) next = child.value();
    if (!next) next = parent->register_module(part, std::make_shared<PathPart>());
    parent = next.get();
  }
  parent->register_module(path.substr(begin), std::move(module));
}

bool is_path(const std::string& path) {
  if (path.empty() || path.front() == '.' || path.back() == '.') return false;
  if (path.find("..") != path.npos) return false;
  return path.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == path.npos;
}

/// Ranks that are threads share the default generator, so only one of them makes a piece at a time.
Piece::Made made(const Piece& piece, uint64_t seed) {
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  seed_default_generator(stable_hash({seed, stable_hash(piece.path)}));
  return piece.make();
}

}  // namespace

void check_pieces(const std::vector<Piece>& pieces) {
  check<UsageError>(!pieces.empty(),
                    "Program::make() returned no piece: there is nothing to train");
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& path = pieces[i].path;
    check<UsageError>(is_path(path),
                      "piece {} of the program has the path '{}': take letters, digits, '_', and "
                      "dots between parts",
                      i, path);
    check<UsageError>(static_cast<bool>(pieces[i].make),
                      "piece '{}' cannot be made: its make is empty", path);
    check<UsageError>(std::isfinite(pieces[i].cost) && pieces[i].cost >= 0,
                      "piece '{}' costs {}: a cost is a number that is not negative", path,
                      pieces[i].cost);
    for (size_t j = 0; j < i; ++j) {
      const std::string& other = pieces[j].path;
      check<UsageError>(path != other, "two pieces of the program have the path '{}'", path);
      check<UsageError>(!path.starts_with(other + ".") && !other.starts_with(path + "."),
                        "piece '{}' is inside piece '{}': give them separate paths", path, other);
    }
  }
}

ProgramModel::ProgramModel(const std::vector<const Piece*>& pieces, const PrecisionPlan& precision,
                           at::DeviceType device, const UnitMade& unit_made, uint64_t seed)
    : Model("Program"), device_(device) {
  if (precision.stored != at::kFloat && !precision.emulated()) stored_ = precision.stored;
  autocast_ = precision.autocast;
  std::map<const void*, std::string> owner;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Held held{pieces[i]->path, made(*pieces[i], seed), false};
    check<UsageError>(held.made.module && held.made.forward, "piece '{}' was made without a module",
                      held.path);
    init_unset(*held.made.module, seed, held.path + ".");
    for (const auto& p : held.made.module->parameters()) {
      const auto [at, is_new] = owner.emplace(p.unsafeGetTensorImpl(), held.path);
      check<UsageError>(is_new || at->second == held.path,
                        "pieces '{}' and '{}' share a parameter: put both into one piece",
                        at->second, held.path);
    }
    register_at(*this, held.path, held.made.module);
    if (unit_made) unit_made(static_cast<int64_t>(i), held.path, *held.made.module);
    pieces_.push_back(std::move(held));
  }
  name_dropouts(*this);
}

void ProgramModel::set_recompute(std::vector<bool> pieces) {
  check<UsageError>(pieces.size() == pieces_.size(),
                    "recomputation is chosen for {} pieces, and there are {}", pieces.size(),
                    pieces_.size());
  for (size_t i = 0; i < pieces.size(); ++i) pieces_[i].recompute = pieces[i];
}

std::vector<at::Tensor> ProgramModel::within(Compute& compute, const Body& body) {
  check<UsageError>(!is_open(), "a loss was computed inside of a loss of the same pieces");
  body_ = &body;
  return compute.forward_list({});
}

std::vector<at::Tensor> ProgramModel::forward_list(const std::vector<at::Tensor>&) {
  check<UsageError>(body_ != nullptr, "a program's pieces run inside of its loss");
  const Body& body = *std::exchange(body_, nullptr);
  struct Open {
    int& count;
    explicit Open(int& c) : count(c) { ++count; }
    ~Open() { --count; }
  } open(open_);
  // Losses are float32; each piece enables autocast for itself.
  std::optional<AutocastGuard> off;
  if (autocast_) off.emplace(device_, std::nullopt);
  return body();
}

std::vector<at::Tensor> ProgramModel::run(size_t piece, const std::vector<at::Tensor>& inputs) {
  Held& held = pieces_.at(piece);
  if (!is_open()) return forward_of(held, inputs);
  return run_unit(
      static_cast<int64_t>(piece),
      [&](const std::vector<at::Tensor>& in) {
        if (!held.recompute) return forward_of(held, in);
        return recompute(
            [this, &held](const std::vector<at::Tensor>& x) { return forward_of(held, x); }, in,
            held.made.module->parameters());
      },
      inputs);
}

std::vector<at::Tensor> ProgramModel::forward_of(Held& piece,
                                                 const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> in = inputs;
  std::vector<at::Tensor> out;
  if (stored_)
    for (at::Tensor& t : in)
      if (t.defined() && t.is_floating_point()) t = t.to(*stored_);
  {
    std::optional<AutocastGuard> on;
    if (autocast_) on.emplace(device_, *autocast_);
    out = piece.made.forward(in);
  }
  if (stored_ || autocast_)
    for (at::Tensor& t : out)
      if (t.defined() && (t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16))
        t = t.to(at::kFloat);
  return out;
}

at::Tensor ProgramModel::forward(const at::Tensor&) {
  fail<UsageError>("a program's pieces are run by its loss, one by one");
}

at::Tensor ProgramModel::loss_sum(const at::Tensor&, const at::Tensor&) {
  fail<UsageError>("a program computes its own loss");
}

}  // namespace trireme
