// SPDX-License-Identifier: Apache-2.0
// ZeRO-3 whose shards of parameters lie in a file between uses.
#include <gtest/gtest.h>

#include "tests/shard/offload_child.h"
#include "tests/shard/sharded_tower.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/offload/offload_optimizer.h"

namespace sharded_on_disk_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

FullyShardedOptions on_disk(const std::string& folder, int64_t prefetch = 0) {
  FullyShardedOptions o;
  o.prefetch_elements = prefetch;
  o.file = ShardFileOptions{.file = {.folder = folder, .block_size = 4096}, .buffer_count = 2};
  return o;
}

/// Elements of all shards of the tower on one of n ranks.
int64_t tower_elements(int n) {
  auto up = [n](int64_t e) { return (e + n * 1024 - 1) / (n * 1024) * 1024; };
  return 4 * up(kBlock) + up(4 * 1024);
}

void backward_of_step(ShardedTower& net, const Group& g, int step) {
  net.sharded.zero_grad();
  loss_of(net.forward(part(rows_of_step(step), g))).backward();
}

MakeOptimizer adamw() {
  return [](NamedTensors p) { return make_adamw(std::move(p)); };
}

/// States in a file, too; two sub-groups a block.
std::unique_ptr<OffloadedOptimizer> both_on_disk(ShardedTower& net, const std::string& folder,
                                                 int buffers = 3) {
  OffloadOptions o;
  o.file.folder = folder;
  o.sub_group_bytes = kBlock / 2 / net.sharded.groups().shards.size() * 16;
  o.buffer_count = buffers;
  o.parameters = net.sharded.pager();
  return offload_optimizer(net.sharded.shards(), adamw(), o);
}

void train_with(Optimizer& optimizer, ShardedTower& net, const Group& g, int first = 0,
                int steps = kSteps) {
  for (int step = first; step < first + steps; ++step) {
    backward_of_step(net, g, step);
    optimizer.step(0.01);
    net.sharded.publish();
  }
}

/// What training with everything in memory comes to.
std::shared_ptr<Tower> in_memory(int n, int steps = kSteps) {
  auto result = std::make_shared<Tower>(2);
  run_threads(n, [&](Group g) {
    ShardedTower net(1, g);
    auto optimizer = adamw()(net.sharded.shards());
    train_with(*optimizer, net, g, 0, steps);
    FullySharded::Gathered whole(net.sharded);
    at::NoGradGuard no_grad;
    const auto values = net.tower->named_parameters();
    if (g.rank() == 0)
      for (auto& item : result->named_parameters()) item.value().copy_(values[item.key()]);
  });
  return result;
}

TEST(shard_sharded_on_disk, training_has_the_bits_of_shards_in_memory) {
  PrivateFolder folder;
  for (int n : {1, 2, 4}) {
    auto want = in_memory(n);
    for (int64_t prefetch : {int64_t{0}, kBlock, 9 * kBlock}) {
      if (n != 2 && prefetch != kBlock) continue;
      run_threads(n, [&](Group g) {
        {
          ShardedTower net(static_cast<uint64_t>(g.rank()) + 1, g,
                           on_disk(folder.path(), prefetch));
          auto optimizer = paged_optimizer(net.sharded.shards(), adamw(), net.sharded.pager());
          train_with(*optimizer, net, g);
          net.expect_same(*want, 0);
        }
        for (int buffers : {1, 3}) {
          ShardedTower net(1, g, on_disk(folder.path(), prefetch));
          auto optimizer = both_on_disk(net, folder.path(), buffers);
          train_with(*optimizer, net, g);
          net.expect_same(*want, 0);
        }
      });
    }
  }
}

TEST(shard_sharded_on_disk, a_torch_optimizer_trains_as_the_serial_run) {
  PrivateFolder folder;
  auto want = serial_adamw();
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g, on_disk(folder.path()));
    train(net, g);
    net.expect_same(*want);
  });
}

TEST(shard_sharded_on_disk, between_uses_no_byte_of_a_shard_is_in_memory) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g, on_disk(folder.path()));
    const int64_t all = tower_elements(2) * 8, block = kBlock / 2 * 8;
    auto optimizer = both_on_disk(net, folder.path());
    auto nothing = [&](const char* when) {
      const ShardFileUsage usage = net.sharded.stats().file;
      expect(usage.resident_bytes == 0 && usage.kept_bytes == 0, when);
      expect(usage.stored_bytes == all, "stored " + std::to_string(usage.stored_bytes));
      expect(usage.buffer_bytes == 2 * block, "buffers " + std::to_string(usage.buffer_bytes));
      for (const auto& [name, t] : net.sharded.shards())
        expect(t.data_ptr() == nullptr, std::string(when) + ": " + name);
    };
    nothing("at first");
    auto plain = net.tower->run_block;
    net.tower->run_block = [&](size_t i, const at::Tensor& x) {
      nothing("while a block is asked for");
      return plain(i, x);
    };
    for (int step = 0; step < 2; ++step) {
      backward_of_step(net, g, step);
      nothing("after backward");
      optimizer->step(0.01);
      nothing("after the step");
      net.sharded.publish();
    }
    expect(optimizer->usage().sub_groups > 8, "the step had many parts");
    // While it is made, the flats of neighbours are held at once.
    const int64_t most = net.sharded.stats().file.most_resident_bytes;
    expect(most >= block && most <= 2 * block, "at most " + std::to_string(most));
  });
}

TEST(shard_sharded_on_disk, an_optimizer_in_memory_needs_all_shards_while_it_steps_and_no_longer) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g, on_disk(folder.path()));
    auto optimizer = paged_optimizer(net.sharded.shards(), adamw(), net.sharded.pager());
    train_with(*optimizer, net, g, 0, 1);
    const ShardFileUsage usage = net.sharded.stats().file;
    expect(usage.most_resident_bytes == tower_elements(2) * 8, "all of them");
    expect(usage.resident_bytes == 0, "and then none");
  });
}

TEST(shard_sharded_on_disk, the_first_shards_stay_in_memory_if_that_is_asked_for) {
  PrivateFolder folder;
  auto want = in_memory(2);
  run_threads(2, [&](Group g) {
    auto options = on_disk(folder.path());
    options.file->in_memory_elements = kBlock + 17;  // two blocks on two ranks
    ShardedTower net(1, g, options);
    auto optimizer = both_on_disk(net, folder.path());
    train_with(*optimizer, net, g);
    const ShardFileUsage usage = net.sharded.stats().file;
    expect(usage.kept_bytes == kBlock * 8, "kept " + std::to_string(usage.kept_bytes));
    expect(usage.stored_bytes == (tower_elements(2) - kBlock) * 8, "stored");
    net.expect_same(*want, 0);
  });
}

TEST(shard_sharded_on_disk, a_checkpoint_is_that_of_shards_in_memory_and_goes_on_to_the_bit) {
  PrivateFolder folder, runs;
  auto want = in_memory(2, 4);
  run_threads(2, [&](Group g) {
    const std::string mine = runs / std::to_string(g.rank());
    auto walk = [](ShardedTower& net, Optimizer& optimizer) {
      return [&](StateVisitor& v) {
        net.sharded.state(v);
        net.sharded.sharded_state(v, [&](StateVisitor& s) { optimizer.state(s); });
      };
    };
    {
      ShardedTower net(1, g);
      auto optimizer = adamw()(net.sharded.shards());
      train_with(*optimizer, net, g, 0, 2);
      save_step(mine + "/memory", 2, walk(net, *optimizer));
    }
    {
      ShardedTower net(1, g, on_disk(folder.path()));
      auto optimizer = both_on_disk(net, folder.path());
      train_with(*optimizer, net, g, 0, 2);
      save_step(mine + "/disk", 2, walk(net, *optimizer));
      expect(net.sharded.stats().file.resident_bytes == 0, "what the writer saw has gone");
      train_with(*optimizer, net, g, 2, 2);
      net.expect_same(*want, 0);
    }
    for (const char* from : {"/memory", "/disk"}) {
      ShardedTower net(7, g, on_disk(folder.path()));
      auto optimizer = both_on_disk(net, folder.path());
      load_step(mine + from, walk(net, *optimizer));
      net.sharded.publish();
      train_with(*optimizer, net, g, 2, 2);
      net.expect_same(*want, 0);
    }
  });
}

TEST(shard_sharded_on_disk, a_visitor_may_keep_a_tensor_and_sees_the_file) {
  struct Keep final : StateVisitor {
    void tensor(const Slice&, at::Tensor local) override { kept.push_back(local); }
    void value(const std::string&, int64_t&) override {}
    void value(const std::string&, double&) override {}
    void value(const std::string&, std::string&) override {}
    std::vector<at::Tensor> kept;
  };
  PrivateFolder folder;
  run_threads(1, [&](Group g) {
    ShardedTower plain(1, g), net(1, g, on_disk(folder.path()));
    Keep want, got;
    plain.sharded.state(want);
    net.sharded.state(got);
    expect(net.sharded.stats().file.resident_bytes == 0, "pages of the file, not memory");
    expect(got.kept.size() == want.kept.size(), "as many");
    for (size_t i = 0; i < got.kept.size(); ++i)
      expect(got.kept[i].equal(want.kept[i]), "tensor " + std::to_string(i));
  });
}

TEST(shard_sharded_on_disk, a_damaged_file_is_corrupt_on_its_rank_and_ends_the_others) {
  PrivateFolder folder;
  std::filesystem::create_directory(folder / "0");
  std::filesystem::create_directory(folder / "1");
  std::string said[2];
  auto body = [&](Group g) {
    const std::string mine = folder / std::to_string(g.rank());
    ShardedTower net(1, g, on_disk(mine));
    train(net, g, 1);
    if (g.rank() == 1) flip_byte(mine, 5000);
    g.barrier();
    train(net, g, 1);
  };
  EXPECT_ANY_THROW(run_threads(2, [&](Group g) {
    try {
      body(g);
    } catch (const Error& e) {
      said[g.rank()] = std::string(e.kind()) + ": " + e.what();
      throw;
    }
  }));
  EXPECT_TRUE(has(said[1], "Corrupt: the offload file in " + folder / "1")) << said[1];
  EXPECT_TRUE(has(said[0], "PeerLost: rank 1 failed") && has(said[0], "not what was written"))
      << said[0];
}

TEST(shard_sharded_on_disk, a_full_disk_and_a_missing_folder_are_one_sentence_on_every_rank) {
  PrivateFolder folder;
  auto construct = [&](const std::string& path) {
    return what_ranks_throw(2, [&](Group g) { ShardedTower net(1, g, on_disk(path)); });
  };
  set_failpoints("offload.reserve=error(28)");
  const auto full = construct(folder.path());
  set_failpoints("");
  for (const auto& s : full) {
    EXPECT_TRUE(has(s, "ResourceError: offload needs 40960 bytes in " + folder.path())) << s;
    EXPECT_TRUE(has(s, "free some space or name another folder")) << s;
  }
  for (const auto& s : construct(folder / "absent"))
    EXPECT_TRUE(has(
        s, "ResourceError: offload folder " + folder / "absent" + ": No such file or directory"))
        << s;
}

TEST(shard_sharded_on_disk, a_shard_that_is_larger_than_a_buffer_may_be_is_refused_by_name) {
  PrivateFolder folder;
  for (const auto& s : what_ranks_throw(2, [&](Group g) {
         auto options = on_disk(folder.path());
         options.file->buffer_elements = kBlock / 2 - 1;
         ShardedTower net(1, g, options);
       }))
    EXPECT_TRUE(has(s,
                    "UsageError: offload: this rank's shard of unit 'block0' has 5120 elements, "
                    "and a buffer may have 5119"))
        << s;
}

}  // namespace

}  // namespace sharded_on_disk_test
