// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/mpi/backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <exception>

#include "trireme/base/check.h"
#include "trireme/base/process/signals.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/dtypes.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/mpi/board.h"
#include "trireme/comm/mpi/load.h"
#include "trireme/comm/mpi/mpi_backend.h"
#include "trireme/comm/mpi/own_store.h"
#include "trireme/comm/mpi_group.h"
#include "trireme/comm/wrappers/recorded_backend.h"
#include "trireme/store/store.h"

namespace trireme::detail {

MpiBackend::MpiBackend(std::unique_ptr<MpiCommunicator> comm, Duration timeout,
                       const MpiLimits& limits)
    : Backend(comm->rank(), comm->size(), timeout),
      comm_(std::move(comm)),
      reports_(*comm_),
      limits_(limits) {
  comm_->api.set_exit_patience(std::chrono::duration<double>(timeout).count());
}

// Calls in flight and their memory belong to MPI: what does not complete soon is left behind.
MpiBackend::~MpiBackend() {
  try {
    const bool unwinding = std::uncaught_exceptions() > 0;
    const Deadline patience =
        Deadline::after(std::min<Duration>(timeout(), std::chrono::seconds(5)));
    while (!failure_ && !unwinding && !pending_.empty() && !patience.expired()) {
      progress();
      listen(nullptr, {});
    }
    if (!failure_ && (unwinding || !pending_.empty()))
      abort(unwinding ? "it left its group because of an exception"
                      : "it left its group while calls were under way",
            AbortKind::other);
  } catch (const std::exception&) {  // a rank that leaves need not know about the others
  }
  if (failure_) comm_->set_broken();
  for (auto& [number, p] : pending_) {
    std::vector<TriremeMpiRequest> requests;
    for (const Request& r : p->requests) requests.push_back(r.bits);
    comm_->api.abandon(requests.data(), requests.size());
    [[maybe_unused]] Pending* kept = p.release();
  }
}

const std::string& MpiBackend::name() const {
  static const std::string name = "mpi";
  return name;
}

bool MpiBackend::supports(Collective, at::ScalarType dtype, at::DeviceType device) const {
  return device == at::kCPU && dtype_of(dtype).has_value();
}

bool MpiBackend::supports(ReduceOp op, at::ScalarType dtype) const { return reduces(op, dtype); }

at::Tensor MpiBackend::empty(at::IntArrayRef sizes, at::TensorOptions options) {
  check<UsageError>(options.device().is_cpu(), "the mpi backend provides CPU memory, not {} memory",
                    options.device().str());
  return at::empty(sizes, options);
}

std::unique_ptr<WaitBoard> MpiBackend::make_board() {
  if (size() == 1) return nullptr;
  MpiOwnStore own = open_own_store(*comm_, timeout());
  if (!own.store) return mpi_board(comm_->duplicate(timeout()));
  board_server_ = std::move(own.server);
  // MPI_Finalize waits for all ranks, so the process of a rank that ended silently would remain.
  return own_store_board(std::move(own.store), rank(), size(), /*speaks_at_exit=*/true);
}

std::shared_ptr<Backend> MpiBackend::subgroup(const std::vector<int>& members,
                                              const std::string& name) {
  // MPI_Comm_create_group waits for the members without a deadline, so they first check through the
  // first of them that all have arrived.
  constexpr int kHere = -MpiCommunicator::kOwnTags;
  const CallSite site{name.c_str(), 0};
  const int first = members.front();
  std::vector<Token> tokens;
  const auto exchange = [&](Collective op, int peer) {
    const at::Tensor byte = at::empty({1}, at::TensorOptions().dtype(at::kByte)).zero_();
    tokens.push_back(post(
        {.op = op, .root = peer, .tag = kHere, .input = &byte, .output = &byte, .site = site}));
  };
  const auto wait_all = [&] {
    for (Token t : tokens) wait(t, timeout());
    tokens.clear();
  };
  for (int m : members) {
    if (m == first) continue;
    if (rank() == first) exchange(Collective::recv, m);
    if (rank() == m) exchange(Collective::send, first);
  }
  wait_all();
  for (int m : members) {
    if (m == first) continue;
    if (rank() == first) exchange(Collective::send, m);
    if (rank() == m) exchange(Collective::recv, first);
  }
  wait_all();
  auto made = std::make_shared<MpiBackend>(comm_->create(members), timeout(), limits_);
  made->board_server_ = board_server_;
  return made;
}

namespace {

/// Returns the ranks of a part of the world, in MPI's numbering.
std::vector<int> meet(const BackendSpec& spec, int own, int world_size) {
  check<UsageError>(spec.store != nullptr,
                    "mpi: a group of some ranks of the world needs a store to meet in");
  const auto key = [&](int r) { return "mpi/" + std::to_string(r); };
  const Deadline deadline = Deadline::after(spec.timeout);
  spec.store->set(key(spec.rank), std::to_string(own));
  std::vector<int> ranks;
  for (int r = 0; r < spec.size; ++r) {
    const std::string value = spec.store->get(key(r), deadline);
    int rank = -1;
    std::from_chars(value.data(), value.data() + value.size(), rank);
    check<UsageError>(
        rank >= 0 && rank < world_size &&
            std::find(ranks.begin(), ranks.end(), rank) == ranks.end(),
        "group '{}': its rank {} says that it is rank {} of an MPI world of {}: the ranks of this "
        "group were not started by one mpirun or srun",
        spec.name, r, value, world_size);
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::shared_ptr<Backend> mpi_backend(const BackendSpec& spec) {
  const TriremeMpiModule& api = load_mpi();
  const auto world = MpiCommunicator::adopt(api);
  if (spec.name != "world") {
    const auto ranks = meet(spec, world->rank(), world->size());
    return std::make_shared<MpiBackend>(world->create(ranks), spec.timeout, MpiLimits{});
  }
  check<UsageError>(
      world->size() == spec.size,
      "the backend 'mpi': this job has {} ranks, but {} sees a world of {}: start the ranks with "
      "the mpirun of that MPI{}",
      spec.size, api.library, world->size(),
      world->size() == 1 ? " (under srun: with the --mpi= that it was built for, see srun "
                           "--mpi=list)"
                         : "");
  check<UsageError>(world->rank() == spec.rank,
                    "the backend 'mpi': this is rank {} of the job, but rank {} of MPI's world; "
                    "leave RANK and WORLD_SIZE to mpirun or srun",
                    spec.rank, world->rank());
  return std::make_shared<MpiBackend>(world->duplicate(spec.timeout), spec.timeout, MpiLimits{});
}

std::shared_ptr<Backend> mpi_backend_on(const void* comm, size_t bytes, bool is_pointer,
                                        Duration timeout, const MpiLimits& limits) {
  std::optional<MpiFlavour> flavour;
  if (comm) flavour = is_pointer ? MpiFlavour::openmpi : MpiFlavour::mpich;
  const TriremeMpiModule& api = load_mpi(flavour);
  const auto given = MpiCommunicator::adopt(api, comm, bytes);
  return std::make_shared<MpiBackend>(given->duplicate(timeout), timeout, limits);
}

bool has_mpi() {
  return !mpi_module_path(MpiFlavour::openmpi).empty() ||
         !mpi_module_path(MpiFlavour::mpich).empty();
}

Group mpi_group(const void* comm, size_t bytes, bool is_pointer, Duration timeout,
                const std::string& check_word) {
  if (!flight::flight_folder().empty()) install_signal_handlers();
  const TriremeMpiModule& api = load_mpi(is_pointer ? MpiFlavour::openmpi : MpiFlavour::mpich);
  const auto given = MpiCommunicator::adopt(api, comm, bytes);
  auto made = std::make_shared<MpiBackend>(given->duplicate(timeout), timeout, MpiLimits{});
  auto board = check_word == "off" ? nullptr : made->make_board();
  const int rank = made->rank();
  return Group(recorded_backend(
      checked_backend(std::move(made), check_word, "world", std::move(board)), "world", rank));
}

}  // namespace trireme::detail
