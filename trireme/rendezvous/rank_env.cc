// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/rank_env.h"

#include <charconv>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/slurm.h"

namespace trireme {
namespace {

class Variables {
 public:
  explicit Variables(const net::Getenv& env) : env_(env) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = env_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  std::optional<int> number(const std::string& name) const {
    auto value = text(name);
    if (!value) return std::nullopt;
    int out = 0;
    auto [end, code] = std::from_chars(value->data(), value->data() + value->size(), out);
    check<UsageError>(
        code == std::errc() && end == value->data() + value->size() && out >= 0,
        "the environment says {}='{}', which is not a whole number from 0: fix or unset it", name,
        *value);
    return out;
  }

 private:
  const net::Getenv& env_;
};

/// The names under which one kind of launcher says the four numbers.
struct Names {
  const char* source;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
};
constexpr Names kTorch = {"torchrun variables", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                          "LOCAL_WORLD_SIZE"};
constexpr Names kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};
constexpr Names kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                          "SLURM_STEP_TASKS_PER_NODE"};

/// What one source says; `names` for the texts.
struct Claim {
  Names names;
  int rank = 0;
  int world = 1;
  std::optional<int> local_rank;
  std::optional<int> local_world;
  std::optional<int> node;
  std::string master_addr;
  std::string job_id;
};

void check_claim(const Claim& c) {
  check<UsageError>(c.world >= 1, "the environment says {}={}: a world has at least one rank",
                    c.names.world, c.world);
  check<UsageError>(c.rank < c.world, "the environment says {}={} and {}={}: ranks go from 0 to {}",
                    c.names.rank, c.rank, c.names.world, c.world, c.world - 1);
  if (c.local_world)
    check<UsageError>(
        *c.local_world >= 1 && *c.local_world <= c.world,
        "the environment says {}={} and {}={}: a host has between one rank and all of them",
        c.names.local_world, *c.local_world, c.names.world, c.world);
  if (c.local_rank && c.local_world)
    check<UsageError>(*c.local_rank < *c.local_world,
                      "the environment says {}={} where {} ranks run on the host ({})",
                      c.names.local_rank, *c.local_rank, *c.local_world, c.names.local_world);
  if (c.local_rank)
    check<UsageError>(*c.local_rank < c.world, "the environment says {}={} and {}={}",
                      c.names.local_rank, *c.local_rank, c.names.world, c.world);
}

std::optional<Claim> launcher_claim(const Variables& env, const Names& names) {
  auto rank = env.number(names.rank);
  auto world = env.number(names.world);
  if (!rank || !world) return std::nullopt;
  Claim c{names, *rank, *world, env.number(names.local_rank), env.number(names.local_world),
          {},    {},    {}};
  c.job_id = env.text("PMIX_NAMESPACE").value_or(env.text("FLUX_JOB_ID").value_or(""));
  return c;
}

/// Only a step has ranks: in a batch script and in an salloc shell SLURM_NTASKS is what was asked
/// for, not what runs.
std::optional<Claim> slurm_claim(const Variables& env) {
  auto rank = env.number("SLURM_PROCID");
  auto step = env.text("SLURM_STEP_ID");
  if (!step) step = env.text("SLURM_STEPID");
  constexpr std::string_view kBatchStep = "4294967291";
  if (!rank || !step || *step == kBatchStep || *step == "batch") return std::nullopt;
  Claim c{kSlurm, *rank, 1, env.number("SLURM_LOCALID"), {}, env.number("SLURM_NODEID"), {}, {}};
  auto world = env.number("SLURM_STEP_NUM_TASKS");
  if (!world) {
    world = env.number("SLURM_NTASKS");
    c.names.world = "SLURM_NTASKS";
  }
  check<UsageError>(
      world.has_value(),
      "the environment says SLURM_PROCID={} in step {} but not how many tasks the step has: set "
      "SLURM_STEP_NUM_TASKS, or RANK and WORLD_SIZE",
      *rank, *step);
  c.world = *world;
  if (auto per_node = env.text("SLURM_STEP_TASKS_PER_NODE"); per_node && c.node)
    c.local_world = slurm_tasks_on_node(*per_node, *c.node, "SLURM_STEP_TASKS_PER_NODE");
  if (c.world == 1) c.local_world = 1;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    auto nodes = env.text(name);
    if (!nodes || !c.master_addr.empty()) continue;
    c.master_addr = expand_slurm_nodes(*nodes, name).front();
  }
  if (c.master_addr.empty()) c.master_addr = env.text("SLURM_LAUNCH_NODE_IPADDR").value_or("");
  c.job_id = env.text("SLURM_JOB_ID").value_or("") + "." + *step;
  return c;
}

std::optional<Claim> torch_claim(const Variables& env, const std::optional<Claim>& launcher) {
  auto rank = env.number("RANK");
  auto world = env.number("WORLD_SIZE");
  if (!rank && !world) return std::nullopt;
  if (!rank) {  // a script that exports WORLD_SIZE for all and leaves the rank to srun or mpirun
    check<UsageError>(launcher || *world == 1,
                      "the environment says WORLD_SIZE={} but not RANK: set both, or neither",
                      *world);
    check<UsageError>(!launcher || launcher->world == *world,
                      "the environment says WORLD_SIZE={} and {}={}: unset one, or make them agree",
                      *world, launcher ? launcher->names.world : "",
                      launcher ? launcher->world : 0);
    return std::nullopt;
  }
  check<UsageError>(world.has_value(),
                    "the environment says RANK={} but not WORLD_SIZE: set both, or neither", *rank);
  Claim c{kTorch, *rank, *world, env.number("LOCAL_RANK"), env.number("LOCAL_WORLD_SIZE"),
          {},     {},    {}};
  c.node = env.number("GROUP_RANK");
  if (!c.node) c.node = env.number("PET_NODE_RANK");
  return c;
}

/// Two sources that count the same ranks must number them the same. Different worlds are two
/// levels: mpirun's daemons under srun, or a script that starts several ranks in one task.
void check_agreement(const Claim& torch, const Claim& launcher) {
  if (launcher.world != torch.world) return;
  check<UsageError>(launcher.rank == torch.rank,
                    "the environment says RANK={} and {}={}, both of {} ranks: unset RANK and "
                    "WORLD_SIZE, or make them agree",
                    torch.rank, launcher.names.rank, launcher.rank, torch.world);
}

/// What `claim` leaves open, from another source that counts the same ranks.
void fill_gaps(Claim* claim, const Claim& other) {
  if (claim->world != other.world || claim->rank != other.rank) return;
  if (!claim->local_rank) claim->local_rank = other.local_rank;
  if (!claim->local_world) claim->local_world = other.local_world;
  if (!claim->node) claim->node = other.node;
  if (claim->master_addr.empty()) claim->master_addr = other.master_addr;
  if (claim->job_id.empty()) claim->job_id = other.job_id;
}

std::optional<Claim> find_launcher(const Variables& env) {
  auto slurm = slurm_claim(env);
  for (const auto& names : kLaunchers) {
    auto claim = launcher_claim(env, names);
    if (claim && slurm) fill_gaps(&*claim, *slurm);  // srun --mpi=pmi2 says little in PMI's words
    if (claim) return claim;
  }
  return slurm;
}

}  // namespace

bool RankEnv::single_host() const {
  if (world_size == 1) return true;
  if (local_world_size > 0) return local_world_size == world_size;
  return net::is_loopback(master_addr);
}

RankEnv read_rank_env(const net::Getenv& getenv, const std::function<std::string()>& launcher_job) {
  Variables env(getenv);
  auto run_id = env.text("TORCHELASTIC_RUN_ID");
  auto store = env.text("TRIREME_STORE");
  // An agent (torchrun, `trireme run`) numbers its own ranks; what started the agent counted hosts
  // or something else.
  bool has_agent = (run_id || store) && env.text("RANK") && env.text("WORLD_SIZE");
  auto claim = has_agent ? std::nullopt : find_launcher(env);
  if (claim) check_claim(*claim);
  // Two jobs of one user on one host must not meet. Hosts have proxies of their own: there a job id
  // from them would part the ranks.
  if (claim && claim->job_id.empty() && claim->world > 1 && claim->local_world == claim->world)
    claim->job_id = launcher_job();
  if (auto torch = torch_claim(env, claim)) {
    check_claim(*torch);
    if (claim) {
      check_agreement(*torch, *claim);
      fill_gaps(&*torch, *claim);
    }
    claim = std::move(torch);
  }

  RankEnv out;
  out.has_agent = has_agent;
  out.store_endpoint = store.value_or("");
  out.master_addr = env.text("MASTER_ADDR").value_or(claim ? claim->master_addr : "");
  auto port = env.number("MASTER_PORT").value_or(out.master_port);
  check<UsageError>(port >= 1 && port <= 65535,
                    "the environment says MASTER_PORT={}: a port is 1 to 65535", port);
  out.master_port = port;
  out.job_id = run_id.value_or(claim ? claim->job_id : "");
  // Where nodes come and go there are more attempts than restarts.
  const auto attempt = env.number("TRIREME_ATTEMPT");
  out.attempt = attempt ? *attempt : env.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  if (!claim) return out;

  out.source = claim->names.source;
  out.rank = claim->rank;
  out.world_size = claim->world;
  out.local_world_size = claim->local_world.value_or(claim->world == 1 ? 1 : 0);
  if (out.local_world_size == 0 && net::is_loopback(out.master_addr))
    out.local_world_size = out.world_size;
  bool one_host = out.local_world_size == out.world_size;
  out.local_rank = claim->local_rank.value_or(one_host ? out.rank : 0);
  out.node_rank = claim->node.value_or(one_host ? 0 : -1);
  return out;
}

}  // namespace trireme
