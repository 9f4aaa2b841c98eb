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
#include "trireme/checkpoint/same_tensors.h"

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

struct LoadSource {
  std::string saved;  // its name in the checkpoint
  std::vector<LoadPiece> pieces;
};

// From where what a walk shows is filled, by the name that the walk shows.
struct LoadPlans {
  std::map<std::string, LoadSource> tensors;
  std::map<std::string, std::string> values;  // name in the checkpoint
  std::set<std::string> other_names;          // of what is filled under another one
};

// `name` with `to` in the place of `from` at its end, behind a dot; "" if it does not end so.
std::string renamed(const std::string& name, const std::string& from, const std::string& to) {
  if (name == from) return to;
  if (!name.ends_with("." + from)) return "";
  return name.substr(0, name.size() - from.size()) + to;
}

// First walk: does the state ask for what the checkpoint holds, and where does it lie? Writes
// nothing.
class Comparer : public StateVisitor {
 public:
  Comparer(const OpenedStep& opened, const LoadOptions& options)
      : folder_(opened.folder()), index_(opened.index()), options_(options) {}

  void tensor(const Slice& slice, at::Tensor local) override {
    take_name(slice.name);
    const std::string first = same_.first_of(slice, local);
    if (first != slice.name) plans.other_names.insert(slice.name);
    const std::string from = saved_name(index_.tensors, slice.name);
    if (from.empty()) {  // it may be there under another of its names
      missing_.emplace_back(slice.name, first);
      return;
    }
    seen_.insert(from);
    from_[slice.name] = from;
    const auto& saved = index_.tensors.at(from);
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
    const auto [filled, fresh] = filled_.emplace(first, from);
    if (!fresh) return refuse_other_values(filled->second, from);
    plans.other_names.erase(slice.name);
    const auto& pieces =
        (plans.tensors[slice.name] = LoadSource{from, plan_load(saved, slice)}).pieces;
    Slice wanted = slice;
    wanted.name = from;
    const bool as_saved =
        pieces.empty() || (pieces.size() == 1 && wanted == part(saved, pieces[0]));
    check<UsageError>(weights || as_saved,
                      "{}: this rank needs elements {} to {} of '{}', which was saved in different "
                      "parts ({}; here layout [{}]): resume with the layout with which it was "
                      "saved; converting layouts is not supported yet",
                      folder_, flat_begin(slice), flat_begin(slice) + slice.numel() - 1, slice.name,
                      layout_text(index_), options_.layout);
  }
  void value(const std::string& name, int64_t&) override { compare(name, 0); }
  void value(const std::string& name, double&) override { compare(name, 1); }
  void value(const std::string& name, std::string&) override { compare(name, 2); }

  void finish() {
    refuse_missing();
    for (const auto& [name, first] : missing_) plans.other_names.insert(name);
    for (const auto& [name, t] : index_.tensors)
      check<UsageError>(
          seen_.count(name) || !expected(t) || is_other_name(name),
          "{} holds tensor '{}', which this state does not know: is it of another model "
          "or optimizer?",
          folder_, name);
    for (const auto& [name, v] : index_.values) {
      const auto ranks = index_.value_ranks.find(name);
      check<UsageError>(seen_.count(name) ||
                            (ranks != index_.value_ranks.end() && !includes(ranks->second)) ||
                            !shown_name(name).empty(),
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
    check<UsageError>(shown_.insert(name).second, "load: the state names '{}' twice", name);
  }
  void compare(const std::string& name, size_t type) {
    take_name(name);
    const std::string from = saved_name(index_.values, name);
    if (from.empty()) refuse_missing();  // the first difference is told
    check<UsageError>(!from.empty(), "{} has no value '{}', which this state asks for", folder_,
                      name);
    const IndexValue& saved = index_.values.at(from);
    check<UsageError>(saved.index() == type, "{}: the value '{}' is of type {} there and {} here",
                      folder_, name, kTypeNames[saved.index()], kTypeNames[type]);
    seen_.insert(from);
    plans.values[name] = from;
  }

  void refuse_missing() const {
    for (const auto& [name, first] : missing_)
      check<UsageError>(filled_.count(first) > 0,
                        "{} has no tensor '{}', which this state asks for: is it of "
                        "another model or optimizer?",
                        folder_, name);
  }

  // The checkpoint's name for what the walk shows as `name`: that, or one that is tied to it.
  template <class Saved>
  std::string saved_name(const std::map<std::string, Saved>& saved, const std::string& name) const {
    if (saved.count(name)) return name;
    for (const TiedName& t : options_.tied)
      if (const std::string other = renamed(name, t.first, t.name); saved.count(other))
        return other;
    return "";
  }
  // What the walk shows for another name of it; "": nothing.
  std::string shown_name(const std::string& name) const {
    for (const TiedName& t : options_.tied)
      if (const std::string first = renamed(name, t.name, t.first); shown_.count(first))
        return first;
    return "";
  }
  bool is_other_name(const std::string& name) const {
    const std::string first = shown_name(name);
    if (first.empty()) return false;
    // State of an optimizer that stepped a tensor under each name may differ; the first one's
    // stays.
    if (const auto of = from_.find(first); name.starts_with(kWeights) && of != from_.end())
      refuse_other_values(of->second, name);
    return true;
  }
  void refuse_other_values(const std::string& a, const std::string& b) const {
    const auto &x = index_.tensors.at(a).parts, &y = index_.tensors.at(b).parts;
    const bool equal = std::equal(x.begin(), x.end(), y.begin(), y.end(),
                                  [](const IndexPart& p, const IndexPart& q) {
                                    return p.xxh3 == q.xxh3 && p.slice.lengths == q.slice.lengths &&
                                           p.slice.offsets == q.slice.offsets;
                                  });
    check<UsageError>(equal,
                      "{}: '{}' and '{}' have different values there, and are one tensor here: it "
                      "is of a model whose weights are not tied",
                      folder_, a, b);
  }

  const std::string& folder_;
  const CheckpointIndex& index_;
  const LoadOptions& options_;
  std::set<std::string> shown_;  // by the walk
  std::set<std::string> seen_;   // of the checkpoint's names
  SameTensors same_;
  std::map<std::string, std::string> from_;    // name shown → name in the checkpoint
  std::map<std::string, std::string> filled_;  // … of those that were shown first under this name
  std::vector<std::pair<std::string, std::string>> missing_;  // name shown, name shown first
};

// Opens the files that the plans read, and checks every part.
void open_and_verify(OpenedStep& opened, const LoadPlans& plans, bool everything) {
  const CheckpointIndex& index = opened.index();
  std::set<std::string> files;
  for (const auto& [name, source] : plans.tensors)
    for (const LoadPiece& piece : source.pieces)
      files.insert(index.tensors.at(source.saved).parts[piece.part].file);
  if (everything)  // the two that stand in every checkpoint, also where they are empty
    for (const char* file : {CheckpointIndex::kModelFile, CheckpointIndex::kStateFile})
      if (index.files.count(file)) files.insert(file);
  opened.open(files);
  for (const auto& [name, source] : plans.tensors)
    for (const LoadPiece& piece : source.pieces)
      opened.verify(index.tensors.at(source.saved).parts[piece.part]);
}

// Second walk: everything fits, now it is written.
class Loader : public StateVisitor {
 public:
  Loader(const OpenedStep& opened, const LoadPlans& plans)
      : opened_(opened), values_(opened.index().values), plans_(plans) {}

  void tensor(const Slice& slice, at::Tensor local) override {
    if (plans_.other_names.count(slice.name)) return;
    const auto found = plans_.tensors.find(slice.name);
    int64_t count = 0;
    if (found != plans_.tensors.end())
      for (const LoadPiece& piece : found->second.pieces) count += piece.count;
    check<UsageError>(found != plans_.tensors.end() && local.numel() == count,
                      "load: '{}' changed between two walks", slice.name);
    if (count == 0) return;
    if (local.is_cpu() && local.is_contiguous()) {
      fill(found->second, local);
      if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
      return;
    }
    at::Tensor staged = at::detail::empty_cpu(local.sizes(), local.scalar_type());
    fill(found->second, staged);
    local.copy_(staged);
  }
  void value(const std::string& name, int64_t& v) override {
    v = std::get<int64_t>(values_.at(plans_.values.at(name)));
  }
  void value(const std::string& name, double& v) override {
    v = std::get<double>(values_.at(plans_.values.at(name)));
  }
  void value(const std::string& name, std::string& v) override {
    v = std::get<std::string>(values_.at(plans_.values.at(name)));
  }

 private:
  void fill(const LoadSource& source, at::Tensor& to) const {
    const IndexTensor& saved = opened_.index().tensors.at(source.saved);
    const int64_t each = static_cast<int64_t>(to.element_size());
    for (const LoadPiece& piece : source.pieces)
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
  std::vector<int64_t> steps;
  try {
    steps = list_steps(run_dir);
  } catch (const ResourceError& e) {
    return fmt::format(". Which checkpoints are before it is not known: {}", e.what());
  }
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
                    "with which it was saved; converting layouts is not supported yet",
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
