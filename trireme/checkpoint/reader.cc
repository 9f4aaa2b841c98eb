// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/reader.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <filesystem>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/load_plan.h"
#include "trireme/checkpoint/opened.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = "model.";

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string layout_text(const CheckpointIndex& index) {
  return fmt::format("layout [{}] of {} rank{}", index.layout, index.world,
                     index.world == 1 ? "" : "s");
}

// Weights that were flattened have lost their shape.
bool shapes_fit(const std::vector<int64_t>& a, const std::vector<int64_t>& b, bool weights) {
  if (a == b) return true;
  if (!weights || (a.size() != 1 && b.size() != 1)) return false;
  const auto &flat = a.size() == 1 ? a : b, &other = a.size() == 1 ? b : a;
  return Slice::whole("", other).numel() == flat[0];
}

constexpr const char* kTypeNames[] = {"int", "double", "string"};

// Pieces by name of a tensor.
using LoadPlans = std::map<std::string, std::vector<LoadPiece>>;

// First walk: does the state ask for what the checkpoint holds, and where does it lie? Writes
// nothing.
class Comparer : public StateVisitor {
 public:
  Comparer(const OpenedStep& opened, const LoadOptions& options)
      : folder_(opened.folder()), index_(opened.index()), options_(options) {}

  void tensor(const Slice& slice, at::Tensor local) override {
    take_name(slice.name);
    auto found = index_.tensors.find(slice.name);
    check<UsageError>(found != index_.tensors.end(),
                      "{} has no tensor '{}', which this state asks for: is it of "
                      "another model or optimizer?",
                      folder_, slice.name);
    const auto& saved = found->second;
    const bool weights = slice.name.starts_with(kWeights);
    check<UsageError>(shapes_fit(slice.global_shape, saved.shape(), weights),
                      "{}: tensor '{}' has shape {} there and {} here: is it of another model?",
                      folder_, slice.name, text_of(saved.shape()), text_of(slice.global_shape));
    check<UsageError>(is_flat_range(slice) && local.defined() && local.numel() == slice.numel(),
                      "load: '{}' is a part of a tensor of several dims, or its memory is not of "
                      "its shape",
                      slice.name);
    check<UsageError>(safetensors_dtype_name(local.scalar_type()) == saved.dtype,
                      "{}: tensor '{}' is {} there and {} here", folder_, slice.name, saved.dtype,
                      c10::toString(local.scalar_type()));
    const auto& pieces = plans[slice.name] = plan_load(saved, slice);
    const bool as_saved = pieces.empty() || (pieces.size() == 1 && slice == part(saved, pieces[0]));
    check<UsageError>(weights || as_saved,
                      "{}: this rank asks for elements {} to {} of '{}', which is in other parts "
                      "there ({}; here layout [{}]): resume with the layout it was saved with; "
                      "turning one layout into another comes with resharding",
                      folder_, flat_begin(slice), flat_begin(slice) + slice.numel() - 1, slice.name,
                      layout_text(index_), options_.layout);
  }
  void value(const std::string& name, int64_t&) override { compare(name, 0); }
  void value(const std::string& name, double&) override { compare(name, 1); }
  void value(const std::string& name, std::string&) override { compare(name, 2); }

  void finish() const {
    for (const auto& [name, t] : index_.tensors)
      check<UsageError>(
          seen_.count(name) || !expected(t),
          "{} holds tensor '{}', which this state does not know: is it of another model "
          "or optimizer?",
          folder_, name);
    for (const auto& [name, v] : index_.values) {
      const auto ranks = index_.value_ranks.find(name);
      check<UsageError>(
          seen_.count(name) || (ranks != index_.value_ranks.end() && !includes(ranks->second)),
          "{} holds the value '{}', which this state does not know", folder_, name);
    }
  }

  LoadPlans plans;

 private:
  static const Slice& part(const IndexTensor& saved, const LoadPiece& piece) {
    return saved.parts[piece.part].slice;
  }
  // Must this rank's walk show the tensor?
  bool expected(const IndexTensor& t) const {
    if (options_.layout == CheckpointIndex::kReplicated) return true;
    if (options_.layout != index_.layout) return false;
    return std::any_of(t.parts.begin(), t.parts.end(),
                       [&](const IndexPart& p) { return p.ranks.empty() || includes(p.ranks); });
  }
  bool includes(const RankList& ranks) const {
    return options_.layout == index_.layout &&
           std::binary_search(ranks.begin(), ranks.end(), options_.rank);
  }
  void take_name(const std::string& name) {
    check<UsageError>(seen_.insert(name).second, "load: the state names '{}' twice", name);
  }
  void compare(const std::string& name, size_t type) {
    take_name(name);
    auto found = index_.values.find(name);
    check<UsageError>(found != index_.values.end(),
                      "{} has no value '{}', which this state asks for", folder_, name);
    check<UsageError>(found->second.index() == type,
                      "{}: the value '{}' is of type {} there and {} here", folder_, name,
                      kTypeNames[found->second.index()], kTypeNames[type]);
  }

  const std::string& folder_;
  const CheckpointIndex& index_;
  const LoadOptions& options_;
  std::set<std::string> seen_;
};

// Opens the files that the plans read, and checks every part.
void open_and_verify(OpenedStep& opened, const LoadPlans& plans, bool everything) {
  const CheckpointIndex& index = opened.index();
  std::set<std::string> files;
  for (const auto& [name, pieces] : plans)
    for (const LoadPiece& piece : pieces)
      files.insert(index.tensors.at(name).parts[piece.part].file);
  if (everything)  // the two that stand in every checkpoint, also where they are empty
    for (const char* file : {CheckpointIndex::kModelFile, CheckpointIndex::kStateFile})
      if (index.files.count(file)) files.insert(file);
  opened.open(files);
  for (const auto& [name, pieces] : plans)
    for (const LoadPiece& piece : pieces) opened.verify(index.tensors.at(name).parts[piece.part]);
}

// Second walk: everything fits, now it is written.
class Loader : public StateVisitor {
 public:
  Loader(const OpenedStep& opened, const LoadPlans& plans)
      : opened_(opened), values_(opened.index().values), plans_(plans) {}

  void tensor(const Slice& slice, at::Tensor local) override {
    const auto found = plans_.find(slice.name);
    int64_t count = 0;
    if (found != plans_.end())
      for (const LoadPiece& piece : found->second) count += piece.count;
    check<UsageError>(found != plans_.end() && local.numel() == count,
                      "load: '{}' changed between two walks", slice.name);
    if (count == 0) return;
    if (local.is_cpu() && local.is_contiguous()) {
      fill(slice.name, found->second, local);
      if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
      return;
    }
    at::Tensor staged = at::detail::empty_cpu(local.sizes(), local.scalar_type());
    fill(slice.name, found->second, staged);
    local.copy_(staged);
  }
  void value(const std::string& name, int64_t& v) override {
    v = std::get<int64_t>(values_.at(name));
  }
  void value(const std::string& name, double& v) override {
    v = std::get<double>(values_.at(name));
  }
  void value(const std::string& name, std::string& v) override {
    v = std::get<std::string>(values_.at(name));
  }

 private:
  void fill(const std::string& name, const std::vector<LoadPiece>& pieces, at::Tensor& to) const {
    const IndexTensor& saved = opened_.index().tensors.at(name);
    const int64_t each = static_cast<int64_t>(to.element_size());
    for (const LoadPiece& piece : pieces)
      std::memcpy(static_cast<uint8_t*>(to.data_ptr()) + piece.to * each,
                  opened_.bytes(saved.parts[piece.part]).data() + piece.from * each,
                  static_cast<size_t>(piece.count * each));
  }

  const OpenedStep& opened_;
  const std::map<std::string, IndexValue>& values_;
  const LoadPlans& plans_;
};

void verify_all(OpenedStep& opened) {
  opened.open_all();
  for (const auto& [name, t] : opened.index().tensors)
    for (const auto& part : t.parts) opened.verify(part);
}

// What to use instead of a damaged checkpoint.
std::string advice(const std::string& folder) {
  const int64_t step = step_of_folder(folder);
  if (step < 0) return "";
  const fs::path parent = fs::path(folder).parent_path();
  const std::string run_dir = parent.empty() ? "." : parent.string();
  const auto steps = list_steps(run_dir);
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    if (*it >= step) continue;
    const std::string candidate = run_dir + "/" + step_folder_name(*it);
    try {
      verify_checkpoint(candidate);
      return fmt::format(
          ". The newest good checkpoint before it is {}: give that path to continue from it",
          candidate);
    } catch (const Error&) {
    }
  }
  return fmt::format(". There is no good checkpoint before it in {}", run_dir);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// All but weights alone wants the layout that was saved.
void check_layout(const OpenedStep& opened, const LoadOptions& options) {
  const CheckpointIndex& index = opened.index();
  if (options.prefix.starts_with(kWeights)) return;
  check<UsageError>(options.layout == index.layout,
                    "{} was saved with {}, and this run has layout [{}]: resume with the layout "
                    "it was saved with; turning one layout into another comes with resharding",
                    opened.folder(), layout_text(index), options.layout);
  check<UsageError>(options.layout == CheckpointIndex::kReplicated || options.rank < index.world,
                    "{} was saved with {}, which has no rank {}: resume with as many ranks",
                    opened.folder(), layout_text(index), options.rank);
}

CheckpointInfo info_of(const OpenedStep& opened) {
  const CheckpointIndex& index = opened.index();
  return {opened.folder(), index.step, index.world, index.layout};
}

}  // namespace

CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                         const LoadOptions& options) {
  Span span("checkpoint", "load");
  const std::string folder = without_slashes(find_checkpoint(without_slashes(path)));
  try {
    OpenedStep opened(folder, options.prefix);
    check_layout(opened, options);
    Comparer comparer(opened, options);
    walk(comparer);
    comparer.finish();
    open_and_verify(opened, comparer.plans, options.prefix.empty());
    c10::AutoGradMode no_grad(false);
    Loader loader(opened, comparer.plans);
    walk(loader);
    return info_of(opened);
  } catch (const Corrupt& e) {
    throw Corrupt(e.what() + advice(folder));
  }
}

CheckpointInfo verify_checkpoint(const std::string& folder) {
  OpenedStep opened(without_slashes(folder), "");
  verify_all(opened);
  return info_of(opened);
}

}  // namespace trireme
