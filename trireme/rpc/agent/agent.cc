// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/agent.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/flight_variables.h"
#include "trireme/rpc/agent/loopback.h"
#include "trireme/rpc/errors.h"
#include "trireme/rpc/object/objects.h"

namespace trireme::rpc::detail {
namespace {

// Handlers get so long to notice that they are to stop, where nobody says how long.
constexpr Duration kLastMoments = std::chrono::seconds(5);
// A wait without a deadline has one that the system's clocks can count.
constexpr Duration kLook = std::chrono::minutes(1);

int cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

void check_name(const std::string& name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  check<UsageError>(!name.empty() && name.size() <= wire::kMaxName && printable,
                    "rpc::init: a worker's name is 1 to {} printable characters without spaces",
                    wire::kMaxName);
}

std::vector<Method> methods_of(const Options& options) {
  std::vector<Method> methods;
  std::set<std::string> names;
  for (const Offer& offer : options.offers)
    for (const Method& method : offer.methods) {
      check<UsageError>(names.insert(method.name).second,
                        "rpc::init: worker '{}' offers '{}' twice", options.name, method.name);
      methods.push_back(method);
    }
  return methods;
}

std::shared_ptr<Carrier> carrier_of(const Options& options) {
  std::shared_ptr<Carrier> carrier;
  for (const Offer& offer : options.offers) {
    if (!offer.carrier) continue;
    check<UsageError>(!carrier, "rpc::init: worker '{}' makes two offers that carry contexts",
                      options.name);
    carrier = offer.carrier;
  }
  return carrier;
}

Options checked(Options options) {
  check_name(options.name);
  check<UsageError>(options.store != nullptr, "rpc::init: worker '{}' needs the job's store",
                    options.name);
  check<UsageError>(!options.roads.empty(), "rpc::init: worker '{}' needs a road to the others",
                    options.name);
  check<UsageError>(options.threads >= 0 && options.most_threads >= 0 && options.rank >= -1,
                    "rpc::init: threads, most_threads and rank of worker '{}' may not be negative",
                    options.name);
  if (options.threads == 0) options.threads = std::max(2, cpus());
  if (options.most_threads == 0) options.most_threads = options.threads + 4;
  check<UsageError>(options.most_threads >= std::max(3, options.threads),
                    "rpc::init: worker '{}' has {} threads at most, which is less than 3 or than "
                    "its {} handlers that compute at a time",
                    options.name, options.most_threads, options.threads);
  return options;
}

}  // namespace

Agent::Agent(Options options, bool process_rank)
    : options_(checked(std::move(options))),
      process_rank_(process_rank),
      core_(std::make_shared<Core>()),
      table_(std::make_shared<Table>()),
      identity_{options_.name, options_.generation},
      registry_(std::make_unique<Registry>(options_.store, options_.generation)) {
  core_->name = options_.name;
  core_->methods = methods_of(options_);
  core_->carrier = carrier_of(options_);
  if (core_->carrier) core_->watchers.push_back(core_->carrier);
  for (const Offer& offer : options_.offers)
    core_->watchers.insert(core_->watchers.end(), offer.watchers.begin(), offer.watchers.end());
  // Only where there is a folder: otherwise SIGUSR2 and the other signals keep their meaning.
  const std::string flights = flight_folder_in([](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  });
  if (!flights.empty()) install_signal_handlers();
  core_->board = std::make_unique<CallBoard>(core_->name, flights);
  core_->written_down.emplace(core_->board.get());
  core_->most_unsent = options_.most_unsent;
  core_->most_waiting = std::max<uint64_t>(1, options_.most_waiting);
  core_->deadlines = std::make_shared<Deadlines>();
  core_->crew =
      std::make_shared<Crew>(Crew::Options{options_.name, options_.threads, options_.most_threads});
  core_->member = registry_->new_number();
  core_->objects = std::make_shared<Objects>(core_->name, core_->member, core_->crew,
                                             core_->deadlines, options_.deadline, &core_->methods);
  for (Method& method : core_->objects->methods()) core_->methods.push_back(std::move(method));
  for (const Method& method : core_->methods)
    core_->answered.push_back(&core_->counts.answered(method.name));
  wire::Hello hello{core_->name, core_->member, {}};
  for (const Method& method : core_->methods)
    hello.methods.push_back({method.name, method.signature});
  wire::encode(hello);  // refuses what is too long, here and not in the first call
  if (core_->carrier) core_->carrier->joined(core_->name, core_->member, core_->crew);

  member_ = {core_->member, options_.name, options_.rank, host_name(), ::getpid(), {}};
  for (size_t i = 0; i < options_.roads.size(); ++i) {
    const auto accept = [core = core_, table = table_, road = static_cast<int>(i)](
                            const std::shared_ptr<channel::Channel>& channel)
        -> std::shared_ptr<channel::Receiver> {
      auto session = std::make_shared<Session>(
          core, channel->peer().name, road,
          [table](const std::shared_ptr<Session>& with) { greeted(*table, with); });
      if (core->leaving || !keep(*table, session)) return nullptr;
      session->attach(channel);
      return session;
    };
    hubs_.push_back(options_.roads[i].make(identity_, accept));
    member_.addresses.emplace_back(options_.roads[i].kind, hubs_.back()->address());
  }
}

void Agent::start() {
  core_->agent = weak_from_this();
  core_->crew->start(hubs_, [deadlines = core_->deadlines](Clock::time_point now) {
    return deadlines->look(now);
  });
  try {
    registry_->join(member_, process_rank_);
  } catch (...) {
    shut_down_ = true;
    core_->crew->stop(Deadline::after(kLastMoments));
    throw;
  }
}

Agent::~Agent() {
  if (!made_in_.is_here()) return;
  try {
    shutdown({.graceful = false, .deadline = Duration::zero()});
  } catch (const std::exception& error) {
    log_warn("{}", brief(error));
  }
}

// False: this worker leaves.
bool Agent::keep(Table& table, const std::shared_ptr<Session>& session) {
  std::lock_guard lock(table.mutex);
  if (table.closed) return false;
  std::erase_if(table.all, [](const auto& other) { return other->ended(); });
  table.all.push_back(session);
  return true;
}

void Agent::greeted(Table& table, const std::shared_ptr<Session>& session) {
  std::lock_guard lock(table.mutex);
  if (table.closed) return;
  auto& place = table.by_member[session->member()];
  if (!place || !place->open()) place = session;
}

std::shared_ptr<Session> Agent::known(int64_t member) {
  std::lock_guard lock(table_->mutex);
  const auto found = table_->by_member.find(member);
  if (found == table_->by_member.end()) return nullptr;
  if (found->second->open()) return found->second;
  table_->by_member.erase(found);
  return nullptr;
}

std::shared_ptr<Session> Agent::self() {
  auto session = std::make_shared<Session>(core_, core_->name, -1);
  check<Aborted>(keep(*table_, session), "worker '{}' has shut down", core_->name);
  session->attach(loopback(identity_, session));
  return session;
}

std::shared_ptr<Session> Agent::opened(const Member& member, Deadline deadline) {
  if (member.number == core_->member) return self();
  std::string why = "it has no road that worker '" + core_->name + "' has";
  for (size_t i = 0; i < hubs_.size(); ++i)
    for (const auto& [kind, address] : member.addresses) {
      if (kind != options_.roads[i].kind) continue;
      auto session = std::make_shared<Session>(core_, member.name, static_cast<int>(i));
      try {
        auto channel =
            hubs_[i]->open(address, {member.name, options_.generation}, session, deadline);
        check<Aborted>(keep(*table_, session), "worker '{}' has shut down", core_->name);
        session->attach(std::move(channel));
        return session;
      } catch (const PeerLost& error) {  // another road may lead there
        why = brief(error);
      }
    }
  throw CallLost(fmt::format("worker '{}' cannot be reached: {}", member.name, why), Began::no);
}

std::shared_ptr<Line> Agent::session_to(const Member& member, Deadline deadline) {
  if (auto session = known(member.number)) return session;
  // One thread opens, others with the same wish wait for it.
  {
    std::unique_lock lock(table_->mutex);
    while (table_->opening.contains(member.number)) {
      check<Timeout>(!deadline.expired(), "worker '{}' has not been reached by the deadline",
                     member.name);
      table_->opened.wait_for(lock, std::min(deadline.remaining(), kLook));
    }
    check<Aborted>(!table_->closed, "worker '{}' has shut down", core_->name);
    table_->opening.insert(member.number);
  }
  try {
    auto session = known(member.number);
    if (!session) {
      session = opened(member, deadline);
      session->wait_for_hello(deadline);
      if (session->member() != member.number) {
        session->break_off("it is another worker than the one that was called");
        throw CallLost(fmt::format("worker '{}' is gone, and another has its place", member.name),
                       Began::no);
      }
      greeted(*table_, session);
    }
    end_opening(member.number);
    return session;
  } catch (...) {
    end_opening(member.number);
    throw;
  }
}

void Agent::end_opening(int64_t member) {
  std::lock_guard lock(table_->mutex);
  table_->opening.erase(member);
  table_->opened.notify_all();
}

std::shared_ptr<Line> Agent::line(const std::string& peer, Deadline deadline) {
  made_in_.check("this worker");
  if (peer == core_->name) return session_to({.number = core_->member, .name = peer}, deadline);
  return session_to(registry_->find(peer, deadline), deadline);
}

std::shared_ptr<Line> Agent::line(int rank, Deadline deadline) {
  made_in_.check("this worker");
  if (rank >= 0 && rank == options_.rank) return line(core_->name, deadline);
  return session_to(registry_->find(rank, deadline), deadline);
}

std::shared_ptr<Line> Agent::line_to(int64_t member, const std::string& name, Deadline deadline) {
  if (member == core_->member) return session_to({.number = member, .name = name}, deadline);
  if (auto session = known(member)) return session;
  const auto found = registry_->find_number(member);
  if (!found) throw CallLost(fmt::format("worker '{}' is gone", name), Began::no);
  return session_to(*found, deadline);
}

std::vector<std::string> Agent::workers() {
  made_in_.check("this worker");
  std::vector<std::string> names;
  for (const Member& member : registry_->present()) names.push_back(member.name);
  return names;
}

std::vector<std::shared_ptr<Session>> Agent::sessions() {
  std::lock_guard lock(table_->mutex);
  return table_->all;
}

void Agent::leave_all(const std::string& why) {
  std::vector<std::shared_ptr<Session>> all;
  {
    std::lock_guard lock(table_->mutex);
    table_->closed = true;
    all.swap(table_->all);
    table_->by_member.clear();
  }
  for (const auto& session : all) session->leave(why);
}

void Agent::shutdown(const ShutdownOptions& options) {
  made_in_.check("this worker");
  std::lock_guard lock(shutdown_mutex_);
  if (std::exchange(shut_down_, true)) return;
  core_->shuts_down = true;
  const Deadline deadline = Deadline::after(options.deadline);
  std::vector<std::string> left_over;
  const auto attempt = [&](const std::function<void()>& step) {
    try {
      step();
    } catch (const std::exception& error) {
      left_over.push_back(brief(error));
    }
  };
  const auto& crew = *core_->crew;
  const auto until_mine_are_done = [&] {
    if (!core_->crew->wait_until([&] { return core_->objects->idle() && core_->made == 0; },
                                 deadline))
      left_over.push_back(fmt::format("{} calls that it made were not answered", +core_->made));
  };
  if (options.graceful) {
    until_mine_are_done();
    attempt([&] { registry_->done(); });
    attempt([&] { registry_->wait_for_all(options_.world, deadline); });
  }
  core_->leaving = true;
  if (!options.graceful) until_mine_are_done();
  // A handler that shuts its own worker down is not waited for.
  const int64_t own = own_executor() == &crew && current_call() ? 1 : 0;
  std::vector<std::string> handlers;
  if (!core_->crew->wait_until([&] { return core_->answering <= own; }, deadline)) {
    for (const auto& session : sessions())
      for (auto& method : session->handlers()) handlers.push_back("'" + method + "'");
    left_over.push_back(
        fmt::format("{} calls of others were not answered", core_->answering - own));
  }
  core_->objects->leave();
  attempt([&] { registry_->leave(); });
  leave_all(fmt::format("worker '{}' has left", core_->name));
  std::string running;
  if (!core_->crew->stop(Deadline::after(kLastMoments))) {
    for (const auto& method : handlers) running += (running.empty() ? "" : ", ") + method;
    left_over.push_back(
        fmt::format("handlers still run ({}): they should look at their stop token", running));
  } else if (core_->answering == 0) {
    // The objects of its offers, which may have a handle of this worker.
    core_->methods.clear();
    core_->watchers.clear();
  }
  std::string text;
  for (const auto& what : left_over) text += (text.empty() ? "" : "; ") + what;
  // A deadline of zero asks for no more than to be cut off; that threads go on is news in any case.
  check<Timeout>(text.empty() || (options.deadline <= Duration::zero() && running.empty()),
                 "worker '{}' was shut down before all was done: {}", core_->name, text);
}

}  // namespace trireme::rpc::detail
