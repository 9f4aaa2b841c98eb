// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/device/train_runs.h"
#include "tests/support/ranks.h"
#include "trireme/tensor/device.h"

// Faults planted in Trireme itself: at its one seam to devices (tensor/device.h), for all that call
// it, whole runs of train() on a late device no longer end as on the CPU. The linker gives calls of
// that seam to the functions below (--wrap, support/pretend_device/pretend_device.cmake).
namespace trireme::device_planted_faults_test {
namespace {

using namespace trireme::testing;

enum class Fault {
  none,
  wait_left_out,            // a stream does not wait for an event
  wait_of_another_stream,   // the wrong stream waits
  event_of_nothing,         // an event stands for no work
  event_of_another_stream,  // or for that of the wrong stream
  early_look,               // the host does not wait for an event
  plain_host_memory,        // host memory for copies is not pinned
  host_memory_shared,       // or is filled again before the copy from it has been made
  copy_on_another_stream,   // a copy is not in order with the stream that it is for
  blocking_event            // recording an event blocks the thread
};
constexpr Fault kLast = Fault::blocking_event;

std::atomic<Fault> planted{Fault::none};

bool is(Fault fault) { return planted.load() == fault; }

struct Planted {
  explicit Planted(Fault fault) { planted = fault; }
  ~Planted() { planted = Fault::none; }
  Planted(const Planted&) = delete;
};

}  // namespace

// As the compiler calls the members: the object first, like any other argument.
#define SEAM(result, name, symbol, ...)                         \
  result real_##name(__VA_ARGS__) __asm__("__real_" symbol);    \
  result wrapped_##name(__VA_ARGS__) __asm__("__wrap_" symbol); \
  __attribute__((visibility("default"))) result wrapped_##name(__VA_ARGS__)

SEAM(void, wait, "_ZNK7trireme12DeviceStream4waitERKNS_11DeviceEventE", const DeviceStream* self,
     const DeviceEvent& event) {
  if (is(Fault::wait_left_out)) return;
  if (!is(Fault::wait_of_another_stream)) return real_wait(self, event);
  const DeviceStream other = DeviceStream::another(self->device());
  real_wait(&other, event);
}

SEAM(DeviceEvent, record, "_ZNK7trireme12DeviceStream6recordEv", const DeviceStream* self) {
  if (is(Fault::event_of_nothing)) return {};
  if (is(Fault::blocking_event)) self->synchronize();
  if (!is(Fault::event_of_another_stream)) return real_record(self);
  const DeviceStream other = DeviceStream::another(self->device());
  return real_record(&other);
}

SEAM(bool, wait_on_host, "_ZNK7trireme11DeviceEvent12wait_on_hostENS_8DeadlineE",
     const DeviceEvent* self, Deadline deadline) {
  return is(Fault::early_look) || real_wait_on_host(self, deadline);
}

SEAM(at::Tensor, host_buffer,
     "_ZN7trireme11host_bufferEN3c108ArrayRefIlEENS0_10ScalarTypeENS0_6DeviceE",
     at::IntArrayRef sizes, at::ScalarType dtype, at::Device partner) {
  if (is(Fault::plain_host_memory)) return real_host_buffer(sizes, dtype, at::kCPU);
  if (!is(Fault::host_memory_shared) || !is_asynchronous(partner))
    return real_host_buffer(sizes, dtype, partner);
  thread_local std::map<std::pair<std::vector<int64_t>, at::ScalarType>, at::Tensor> all;
  at::Tensor& one = all[{sizes.vec(), dtype}];
  if (!one.defined()) one = real_host_buffer(sizes, dtype, partner);
  return one.detach();
}

SEAM(void, copy, "_ZN7trireme20copy_in_stream_orderERKN2at6TensorES3_", const at::Tensor& to,
     const at::Tensor& from) {
  if (!is(Fault::copy_on_another_stream)) return real_copy(to, from);
  const StreamScope scope(DeviceStream::another(to.is_cpu() ? from.device() : to.device()));
  real_copy(to, from);
}

#undef SEAM

namespace {

// What passes the seam, one feature in each.
enum class Scene { prefetch, staged, snapshots, host_optimizer, top_k };
constexpr Scene kLastScene = Scene::top_k;

struct Seen {
  std::string bytes;  // of the checkpoints; or what was thrown
  double loss = 0;
  uint64_t staged_copies = 0, host_waits = 0;
};

class Scenes {
 public:
  Seen run(Scene scene, bool there) {
    const std::string folder = folders_.run("run" + std::to_string(++count_));
    Seen seen;
    const auto before = pretend::counters();
    seen.bytes = outcome_of([&] { seen.loss = train_in(scene, there, folder); });
    if (seen.bytes.empty()) seen.bytes = all_bytes_of(folder);
    pretend::synchronize();
    seen.staged_copies = pretend::counters().staged_copies - before.staged_copies;
    seen.host_waits = pretend::counters().host_waits - before.host_waits;
    return seen;
  }

 private:
  double train_in(Scene scene, bool there, const std::string& folder) {
    Sets sets{"training.steps=3", "checkpoint.async=false", "comm.backend=local"};
    if (there) sets.push_back(kOnDevice);
    int ranks = 2;
    switch (scene) {
      case Scene::prefetch:
        ranks = 1;
        sets = with(sets, host_optimizer("1"));
        sets.push_back("data.workers=1");
        break;
      case Scene::staged:
        sets.push_back("zero_optimization.stage=2");
        break;
      case Scene::snapshots:
        ranks = 1;
        sets = with(sets,
                    {"zero_optimization.stage=1", "checkpoint.async=true", "checkpoint.every=1"});
        break;
      case Scene::host_optimizer:
        ranks = 1;
        sets = with(sets, host_optimizer("1"));
        sets.push_back("data.workers=0");
        break;
      case Scene::top_k:
        sets = with(sets, {"compression.type=topk", "compression.density=0.05"});
        break;
    }
    double loss = 0;
    const Config config = digits("mlp", sets);
    run_threads(
        ranks,
        [&](Group g) {
          TrainOptions options;
          options.run_dir = folder;
          const TrainResult r = train(config, g, options);
          if (g.rank() == 0) loss = r.loss;
        },
        ThreadOptions{std::chrono::seconds(20), "local"});
    return loss;
  }

  Folders folders_;
  int count_ = 0;
};

/// What shows that a run is not as it should be; "": nothing.
std::string shown_by(const Seen& run, const Seen& in_time) {
  if (run.bytes != in_time.bytes || run.loss != in_time.loss) return "other bits";
  if (run.staged_copies > in_time.staged_copies) return "copies that are not from pinned memory";
  if (run.host_waits > in_time.host_waits) return "more waits on the host";
  return "";
}

struct Row {
  Scene scene;
  Fault fault;
  const char* shown;
};

const char* const kBits = "other bits";

// One fault of each kind and one for each place; all pairs with TRIREME_SOAK=1.
std::vector<Row> rows() {
  const char* const kCopies = "copies that are not from pinned memory";
  const char* const kWaits = "more waits on the host";
  return {{Scene::prefetch, Fault::wait_left_out, kBits},
          {Scene::prefetch, Fault::event_of_nothing, kBits},
          {Scene::prefetch, Fault::host_memory_shared, kBits},
          {Scene::prefetch, Fault::copy_on_another_stream, kBits},
          {Scene::staged, Fault::wait_left_out, kBits},
          {Scene::staged, Fault::wait_of_another_stream, kBits},
          {Scene::staged, Fault::event_of_another_stream, kBits},
          {Scene::staged, Fault::plain_host_memory, kCopies},
          {Scene::staged, Fault::blocking_event, kWaits},
          {Scene::snapshots, Fault::early_look, kBits},
          {Scene::host_optimizer, Fault::event_of_another_stream, kBits},
          {Scene::top_k, Fault::early_look, kBits}};
}

// Of all pairs, those that such a run does not pass.
bool is_passed(Scene scene, Fault fault) {
  return !(scene == Scene::host_optimizer && fault == Fault::host_memory_shared);
}

std::vector<Row> all_rows() {
  std::vector<Row> all = rows();
  const auto listed = [&](Scene scene, Fault fault) {
    for (const Row& row : all)
      if (row.scene == scene && row.fault == fault) return true;
    return false;
  };
  for (int s = 0; s <= static_cast<int>(kLastScene); ++s)
    for (int f = 1; f <= static_cast<int>(kLast); ++f) {
      const auto scene = static_cast<Scene>(s);
      const auto fault = static_cast<Fault>(f);
      if (is_passed(scene, fault) && !listed(scene, fault)) all.push_back({scene, fault, nullptr});
    }
  return all;
}

}  // namespace

TEST(device_planted_faults, in_trireme_itself_are_found_by_whole_runs) {
  Scenes scenes;
  std::map<Scene, Seen> in_time;
  const bool soak = std::getenv("TRIREME_SOAK") != nullptr;
  for (const Row& row : soak ? all_rows() : rows()) {
    const std::string name = "scene " + std::to_string(static_cast<int>(row.scene)) + ", fault " +
                             std::to_string(static_cast<int>(row.fault));
    if (!in_time.contains(row.scene)) {
      in_time[row.scene] = scenes.run(row.scene, true);
      pretend::reseed(7);
      EXPECT_EQ(shown_by(scenes.run(row.scene, true), in_time[row.scene]), "")
          << name << ": without a fault";
    }
    std::string shown;
    for (uint64_t seed = 1; seed <= 20 && shown.empty(); ++seed) {
      pretend::reseed(seed);
      const Planted fault(row.fault);
      shown = shown_by(scenes.run(row.scene, true), in_time[row.scene]);
    }
    pretend::reseed(0);
    if (row.shown)
      EXPECT_EQ(shown, row.shown) << name;
    else
      EXPECT_NE(shown, "") << name;
  }
}

}  // namespace trireme::device_planted_faults_test
