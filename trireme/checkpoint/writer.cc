// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/index.h"
#include "trireme/checkpoint/output_file.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// What the walk shows: handles of tensors (no bytes), copies of values.
class Collector : public StateVisitor {
 public:
  void tensor(const Slice& slice, at::Tensor local) override {
    take_name(slice.name);
    check<UsageError>(
        slice.is_whole(),
        "checkpoint: '{}' is a part of a tensor: sharded state cannot be saved here yet",
        slice.name);
    check<UsageError>(local.defined() && local.numel() == slice.numel(),
                      "checkpoint: '{}' has {} elements, its slice says {}", slice.name,
                      local.defined() ? local.numel() : 0, slice.numel());
    check<UsageError>(!safetensors_dtype_name(local.scalar_type()).empty(),
                      "checkpoint: '{}' is {}, a dtype that safetensors files do not hold",
                      slice.name, c10::toString(local.scalar_type()));
    const TensorPlace place = place_of(slice.name);
    files[place.file].emplace_back(place.key, local.detach().reshape(slice.lengths));
    index.tensors[slice.name] = {slice, place.file, safetensors_dtype_name(local.scalar_type()),
                                 ""};
    bytes += local.nbytes();
  }
  void value(const std::string& name, int64_t& v) override {
    take_name(name), index.values[name] = v;
  }
  void value(const std::string& name, double& v) override {
    take_name(name), index.values[name] = v;
  }
  void value(const std::string& name, std::string& v) override {
    take_name(name), index.values[name] = v;
  }

  CheckpointIndex index;
  std::map<std::string, NamedTensors> files;
  uint64_t bytes = 0;

 private:
  void take_name(const std::string& name) {
    check<UsageError>(!name.empty() && names_.insert(name).second,
                      "checkpoint: the state names '{}' twice", name);
  }
  std::set<std::string> names_;
};

// One saver at a time in a run folder, so that every temporary found under the lock is a dead
// run's. The kernel gives it back however the holder ends.
class RunFolderLock {
 public:
  explicit RunFolderLock(const std::string& run_dir)
      : fd_(::open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    check<ResourceError>(static_cast<bool>(fd_), "cannot open {}: {}", run_dir, errno_text());
    // A file system without such locks (some NFS) is used without.
    check<ResourceError>(::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
                         "another process is saving a checkpoint in {}: give each run a folder of "
                         "its own (--run-dir)",
                         run_dir);
  }

 private:
  UniqueFd fd_;
};

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

void remove_temporaries(const std::string& run_dir) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (starts_with(name, ".tmp-step-") || starts_with(name, "latest.tmp."))
      found.push_back(it->path());
  }
  for (const auto& path : found) fs::remove_all(path, error);
}

std::string temporary_name(int64_t step, const char* why) {
  std::random_device random;
  return fmt::format(".tmp-{}-{}-{}-{:08x}", step_folder_name(step), why, ::getpid(), random());
}

void write_files(const std::string& folder, Collector& state) {
  static const std::map<std::string, std::string> kMetadata{
      {"format", "pt"}};  // stock readers ask for it
  state.files.try_emplace(CheckpointIndex::kModelFile);
  state.files.try_emplace(CheckpointIndex::kStateFile);
  for (auto& [file, tensors] : state.files) {
    const auto receipt = write_safetensors(folder + "/" + file, std::move(tensors), kMetadata);
    state.index.files[file] = {receipt.size, receipt.head_checksum};
    for (auto& [name, tensor] : state.index.tensors)
      if (tensor.file == file) tensor.xxh3 = receipt.tensor_checksums.at(place_of(name).key);
  }
  const std::string text = index_text(state.index);
  OutputFile index(folder + "/" + CheckpointIndex::kFileName);
  index.write(text.data(), text.size());
  index.finish();
  fsync_path(folder);
}

// The rename that makes it visible. A step that stands there already (a run resumed from an earlier
// one) changes places with the new one; where the file system cannot exchange, it steps aside
// first.
void publish(const std::string& temporary, const std::string& final_path,
             const std::string& aside) {
  int error = failpoint("checkpoint.before_publish");
  if (!error) {
    if (::rename(temporary.c_str(), final_path.c_str()) == 0) return;
    error = errno;
  }
  if (error == EEXIST || error == ENOTEMPTY) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) ==
        0)
      return;
    error = 0;
    if (::rename(final_path.c_str(), aside.c_str()) != 0) error = errno;
    if (!error && ::rename(temporary.c_str(), final_path.c_str()) == 0) return;
    if (!error) error = errno;
  }
  fail<ResourceError>("cannot publish {}: {}", final_path, errno_text(error));
}

// First out of sight, then away: a half-deleted checkpoint never bears a step's name.
void retire(const std::string& run_dir, int64_t step) {
  const std::string path = run_dir + "/" + step_folder_name(step);
  const std::string aside = run_dir + "/" + temporary_name(step, "old");
  std::error_code error;
  fs::rename(path, aside, error);
  if (!error) fs::remove_all(aside, error);
  if (error) log_warn("the old checkpoint {} could not be deleted: {}", path, error.message());
}

std::string space_text(const std::string& run_dir, uint64_t needed) {
  struct statvfs v {};
  if (::statvfs(run_dir.c_str(), &v) != 0) return "";
  return fmt::format(" The checkpoint needs {} bytes, the disk has {} free.", needed,
                     static_cast<uint64_t>(v.f_bavail) * v.f_frsize);
}

}  // namespace

std::string save_step(const std::string& run_dir, int64_t step, const StateWalk& walk,
                      const SaveOptions& options) {
  check<UsageError>(step >= 0, "save_step: step {} is negative", step);
  check<UsageError>(options.keep >= 1,
                    "save_step: keep is {}: at least the new checkpoint must stay", options.keep);
  check<UsageError>(options.world >= 1 && options.rank >= 0 && options.rank < options.world,
                    "save_step: rank {} of a world of {}", options.rank, options.world);
  if (options.rank != 0) return "";
  Span span("checkpoint", "save");

  Collector state;
  walk(state);
  state.index.step = step;
  state.index.world = options.world;

  std::error_code error;
  const bool made = fs::create_directories(run_dir, error);
  check<ResourceError>(!error, "cannot make the run folder {}: {}", run_dir, error.message());
  if (made) fsync_path(run_dir + "/..");
  RunFolderLock lock(run_dir);
  remove_temporaries(run_dir);

  const std::string temporary = run_dir + "/" + temporary_name(step, "new");
  const std::string final_path = run_dir + "/" + step_folder_name(step);
  const std::string aside = run_dir + "/" + temporary_name(step, "old");
  try {
    check<ResourceError>(::mkdir(temporary.c_str(), 0777) == 0, "cannot make {}: {}", temporary,
                         errno_text());
    write_files(temporary, state);
    publish(temporary, final_path, aside);
  } catch (const ResourceError& e) {
    const std::string space = space_text(run_dir, state.bytes);
    fs::remove_all(temporary, error);
    fail<ResourceError>(
        "checkpoint of step {} was not saved: {}.{} Earlier checkpoints are as they were; free "
        "some space "
        "or choose another --run-dir",
        step, e.what(), space);
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  fsync_path(run_dir);
  failpoint("checkpoint.after_publish");
  write_file_atomic(run_dir + "/latest", step_folder_name(step) + "\n");

  // Only now may older ones go. Later steps are left: they belong to a run that this one has
  // branched off.
  fs::remove_all(temporary, error);  // the replaced one, after an exchange
  fs::remove_all(aside, error);
  auto steps = list_steps(run_dir);
  int kept = 1;
  for (auto it = steps.rbegin(); it != steps.rend(); ++it)
    if (*it < step && ++kept > options.keep) retire(run_dir, *it);
  return final_path;
}

}  // namespace trireme
