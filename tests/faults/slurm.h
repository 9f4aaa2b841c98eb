// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/job.h"
#include "tests/support/ports.h"

namespace trireme::testing {

inline bool on_path(const std::string& program) {
  const std::string path =
      std::string(std::getenv("PATH") ? std::getenv("PATH") : "") + ":/usr/sbin:/usr/local/sbin:";
  for (size_t at = 0, end; (end = path.find(':', at)) != std::string::npos; at = end + 1)
    if (::access((path.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

/// A real Slurm in a private folder: munged, slurmctld and a slurmd for each node, with ports that
/// the kernel chose. All nodes are this host, under its loopback addresses. `why()` says why there
/// is none.
class Slurm {
 public:
  explicit Slurm(int nodes) : nodes_(nodes) {
    for (const char* program : {"munged", "slurmctld", "slurmd", "srun", "sinfo"})
      if (!on_path(program)) {
        why_ = std::string(program) + " is not installed (slurmctld slurmd munge slurm-client)";
        return;
      }
    if (::geteuid() != 0) {
      why_ = "slurmd starts jobs as root only";
      return;
    }
    start();
  }

  /// "": it runs.
  const std::string& why() const { return why_; }
  /// What its daemons have said.
  std::string log() {
    controller_->read_for(milliseconds(1));
    std::string text = controller_->err;
    for (auto& slurmd : slurmds_) {
      slurmd->read_for(milliseconds(1));
      text += slurmd->err;
    }
    return text;
  }
  Environment environment() const { return {{"SLURM_CONF", folder_ / "slurm.conf"}}; }

 private:
  void start() {
    for (const char* name : {"state", "munge"}) std::filesystem::create_directory(folder_ / name);
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0711));
    std::string key(1024, '\0');
    std::ifstream("/dev/urandom", std::ios::binary).read(key.data(), 1024);
    write(folder_ / "munge/key", key);
    std::filesystem::permissions(folder_ / "munge/key", std::filesystem::perms(0400));
    std::filesystem::permissions(folder_ / "munge", std::filesystem::perms(0700));
    write(folder_ / "slurm.conf", configuration());

    const Environment env{{"PATH", std::string(std::getenv("PATH")) + ":/usr/sbin"},
                          {"SLURM_CONF", folder_ / "slurm.conf"}};
    const std::string munge = folder_ / "munge";
    munged_ = std::make_unique<Command>(
        Arguments{"munged", "--foreground", "--force", "--socket=" + socket(),
                  "--key-file=" + munge + "/key", "--log-file=" + munge + "/log",
                  "--pid-file=" + munge + "/pid", "--seed-file=" + munge + "/seed"},
        CommandOptions{env, {}});
    if (!eventually([&] { return ::access(socket().c_str(), F_OK) == 0; }, seconds(5))) {
      munged_->read_for(milliseconds(1));
      why_ = "munged does not start: " + munged_->err;
      return;
    }
    controller_ = std::make_unique<Command>(
        Arguments{"slurmctld", "-D", "-f", folder_ / "slurm.conf"}, CommandOptions{env, {}});
    for (int node = 1; node <= nodes_; ++node)
      slurmds_.push_back(std::make_unique<Command>(
          Arguments{"slurmd", "-D", "-N", node_name(node), "-f", folder_ / "slurm.conf"},
          CommandOptions{env, {}}));
    std::string said;
    const bool up = eventually(
        [&] {
          Command info({"sinfo", "-h", "-o", "%T"}, {env, {}});
          info.finish(seconds(3));
          said = info.out + info.err;
          return info.out == "idle\n";
        },
        seconds(20));
    if (up) return;
    why_ = "Slurm does not come up: " + said + log();
  }

  static std::string node_name(int node) { return "127.0.0." + std::to_string(node); }
  std::string socket() const { return folder_ / "munge.socket"; }

  std::string configuration() const {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    std::string host(name);
    host = host.substr(0, host.find('.'));
    const std::string cpus = std::to_string(::sysconf(_SC_NPROCESSORS_ONLN));
    std::string nodes, names;
    for (int node = 1; node <= nodes_; ++node) {
      nodes += "\nNodeName=" + node_name(node) + " NodeHostname=" + host +
               " NodeAddr=127.0.0.1 Port=" + std::to_string(free_tcp_port()) + " CPUs=" + cpus +
               " State=UNKNOWN";
      names += (node > 1 ? "," : "") + node_name(node);
    }
    return "ClusterName=trireme\nSlurmctldHost=" + host +
           "(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nSlurmctldPort=" +
           std::to_string(free_tcp_port()) + "\nAuthType=auth/munge\nAuthInfo=socket=" + socket() +
           "\nCredType=cred/munge\nStateSaveLocation=" + folder_ / "state" +
           "\nSlurmdSpoolDir=" + folder_ / "spool-%n" +
           "\nSlurmctldPidFile=" + folder_ / "ctld.pid" +
           "\nSlurmdPidFile=" + folder_ / "d-%n.pid" +
           "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/linear"
           "\nSchedulerType=sched/"
           "builtin\nSchedulerParameters=sched_interval=1\nJobAcctGatherType=jobacct_gather/none"
           "\nAccountingStorageType=accounting_storage/none\nMpiDefault=none\nSwitchType=switch/"
           "none"
           "\nMailProg=/bin/true\nReturnToService=2\nSlurmdParameters=config_overrides" +
           nodes + "\nPartitionName=p Nodes=" + names + " Default=YES MaxTime=INFINITE State=UP\n";
  }

  const int nodes_;
  PrivateFolder folder_{"slurm"};
  std::string why_;
  std::unique_ptr<Command> munged_, controller_;
  std::vector<std::unique_ptr<Command>> slurmds_;  // go first
};

class OneNodeSlurm : public Slurm {
 public:
  OneNodeSlurm() : Slurm(1) {}
};

}  // namespace trireme::testing
