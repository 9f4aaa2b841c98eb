// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/own_folder.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/base/file/folder.h"
#include "trireme/comm/objects.h"
#include "trireme/front/run_folder.h"
#include "trireme/train/rank_zero.h"

namespace trireme {
namespace {

struct Said {
  bool holds = false;
  std::string owner;
  TRIREME_FIELDS(holds, owner)
};

std::string text_of_lock(const std::string& folder) {
  std::ifstream in(folder + "/" + launch::kRunLockName);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

OwnFolder::OwnFolder(const TaskOptions& given, int rank) : run_dir_(given.get("run-dir")) {
  made_ = given.get("made", "");
  if (const auto fd = given.find("lock-fd"))
    lock_.emplace(launch::RunLock::adopt(run_dir_, std::stoi(*fd)));
  if (const auto fd = given.find("steps-lock-fd"))
    steps_lock_.emplace(launch::RunLock::adopt(given.get("steps"), std::stoi(*fd)));
  // The rank was started by hand, without `trireme train`.
  if (!lock_ && !given.find("config-fd") && rank == 0) {
    make_folders(run_dir_);
    lock_.emplace(run_dir_);
  }
}

OwnFolder::~OwnFolder() {
  lock_.reset();
  if (!made_.empty()) remove_unbegun_run(run_dir_, made_);
}

void OwnFolder::keep(Group world, const std::string& steps) {
  bool held = false;
  for (const Said& said : all_gather_object(world, Said{lock_.has_value(), owner_})) {
    held = held || said.holds;
    if (owner_.empty()) owner_ = said.owner;
  }
  if (!held && owner_.empty()) return;
  owner_ = from_rank_0(world, [&] {
    if (!held) take(owner_, steps);
    return text_of_lock(run_dir_);
  });
}

/// `owner`, the rank that is lost, may have been on a host that nobody sees from here.
void OwnFolder::take(const std::string& owner, const std::string& steps) {
  const launch::RunLockOptions options{.take_over = text_of_lock(run_dir_) == owner};
  lock_.emplace(run_dir_, options);
  std::error_code error;
  if (!std::filesystem::equivalent(steps, run_dir_, error)) steps_lock_.emplace(steps, options);
}

}  // namespace trireme
