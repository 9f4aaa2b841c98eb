// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/process/stop_requests.h"
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/checkpoint/steps/snapshot/kept_snapshots.h"
#include "trireme/launch/hang/hang_guard.h"
#include "trireme/launch/in_place.h"
#include "trireme/launch/job_plan.h"
#include "trireme/launch/nodes/nodes.h"
#include "trireme/launch/process/keeper.h"
#include "trireme/launch/process/signal_inbox.h"
#include "trireme/launch/restart_budget.h"

namespace trireme::launch {

/// What is said of a job that failed.
enum class FailureReport {
  block,     // torch's error block; the job's exit code is 1
  one_line,  // workers of our own that reported an error: "trireme: error: WHAT", with their exit
             // code. Any other end: the block
};

struct SuperviseSpec {
  std::string name;                  // of the program, for the error block
  std::string folder;                // holds <local rank>/error.json and the logs
  bool folder_stays = false;         // else the error block names no file in it
  SignalInbox* inbox = nullptr;      // made before any thread of the launcher
  StopRequests* requests = nullptr;  // what has come from it, before this attempt too
  Keeper* keeper = nullptr;
  SnapshotHolder* snapshots = nullptr;  // null: none are held
  GenerationFence fence = {};           // of steps that are written from them
  KeptSnapshots* memory = nullptr;      // with snapshots: takes them when a worker failed
  HangGuard* hangs = nullptr;           // null: nobody looks for ranks that hang
  Nodes* nodes = nullptr;               // an attempt has begun
  FailureReport report = FailureReport::block;
  RestartBudget* restarts = nullptr;
  InPlace* in_place = nullptr;    // null: the others never go on without a worker that has ended
  std::string cause_before = "";  // JobEnd::cause of the attempt before this one
};

/// How the workers ended.
struct JobEnd {
  int code = 0;  // of the job
  /// What failed, in one line, where they are to be started again; nothing more is said then. "":
  /// the job has ended.
  std::string restart_after;
  std::string cause;           // what it reported by itself; "": nothing
  bool asked_to_stop = false;  // this launcher, by a signal
};

/// Starts the workers of this node, watches them and returns when no process of theirs is left.
/// - What ends the attempt here ends it on all nodes, and the other way round.
/// - A worker that fails (non-zero, or a signal): the others get SIGTERM at once and SIGKILL after
///   min(--shutdown-timeout, 4 s); torch's error block names the first cause on stderr; returns 1.
/// - A handled signal is forwarded once; workers have --shutdown-timeout to save and leave. A
/// second one kills if it is impatient (StopRequests). Returns 128+n, or what all workers said
/// themselves.
/// - Workers that all end with 130 (interrupted) or all with 75 (saved, restart), asked by this
/// launcher or not: returns that. After the first of them the others have seconds to follow it.
/// - A rank that marks its progress and then makes none (launch/hang): what all of them are at is
/// written down, and they are killed; the rank has failed.
/// - With restarts left, a worker that failed by itself ends the attempt and not the job, unless
/// the next attempt would meet the same: it reported a UsageError, or for the second time the same
/// failure of the same step.
/// - Where those that are left can go on without a worker that ended without a word of its own
/// (in_place), they do, another is started in its place, and that counts as a restart.
/// - What the workers started and left behind is killed.
/// - Where a worker failed, what they left in memory is SuperviseSpec::memory's.
/// The calling thread must be the one that lives longest: the kernel kills workers when it ends.
/// UsageError: a program that cannot be started.
TRIREME_API JobEnd supervise(const RunOptions& options, const JobPlan& plan,
                             const SuperviseSpec& spec);

}  // namespace trireme::launch
