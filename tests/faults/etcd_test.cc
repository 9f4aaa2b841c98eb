// SPDX-License-Identifier: Apache-2.0
// Jobs of several hosts that meet through an etcd on a third one: nobody names an address of
// theirs.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/faults/job.h"
#include "tests/support/etcd_server.h"
#include "tests/support/namespaces.h"
#include "trireme/base/file.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

namespace trireme::testing::etcd_test {
namespace {

constexpr Duration kPatience = seconds(90);

class faults_etcd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = EtcdServer::missing(); !why.empty()) GTEST_SKIP() << why;
    if (!hosts_.why().empty()) GTEST_SKIP() << hosts_.why();
    launch::write_secret(folder_ / "secret", net::generate_secret());
    start_etcd();
  }
  void start_etcd() {
    const std::string url = "http://" + Hosts::address(2) + ":2379";
    etcd_ = std::make_unique<Command>(hosts_.on(
        2,
        {"sh", "-c", "exec etcd \"$@\" >" + folder_ / "log" + " 2>&1", "etcd",
         "--data-dir=" + folder_ / "data", "--listen-client-urls=" + url,
         "--advertise-client-urls=" + url, "--heartbeat-interval=20", "--election-timeout=200"}));
  }
  std::unique_ptr<Command> on(int host, Arguments words, const Arguments& program) const {
    for (const std::string& word :
         {std::string("--rdzv-backend=etcd"), "--rdzv-endpoint=" + Hosts::address(2),
          std::string("--rdzv-id=job"),
          std::string("--rdzv-conf=keep_alive_interval=0.5,keep_alive_max_attempt=4,"
                      "last_call_timeout=0")})
      words.push_back(word);
    words.insert(words.end(), program.begin(), program.end());
    return std::make_unique<Command>(
        hosts_.on(host, trireme(words)),
        CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"}}, folder_.path()});
  }
  std::unique_ptr<Command> trainer(int host, const std::string& run) const {
    return on(host,
              {"train", write(folder_ / "tiny.json", kTinyMlp), "--nnodes=2", "--steps=60",
               "--run-dir", run, "--set", "checkpoint.every=10"},
              {});
  }

  Hosts hosts_{3};
  PrivateFolder folder_{"trireme-test"};
  std::unique_ptr<Command> etcd_;
};

TEST_F(faults_etcd, hosts_find_each_other_and_train_to_the_bits_of_one) {
  const std::string run = folder_ / "run", alone = folder_ / "alone";
  // etcd has not begun to answer yet, and goes when the job runs.
  const auto a = trainer(0, run), b = trainer(1, run);
  ASSERT_TRUE(a->wait_for("node ", kPatience)) << a->err;
  ASSERT_TRUE(b->wait_for("node ", kPatience)) << b->err;
  etcd_.reset();
  EXPECT_EQ(a->finish(kPatience), 0) << a->err;
  EXPECT_EQ(b->finish(kPatience), 0) << b->err;
  EXPECT_NE((a->err + b->err).find("node 1 of 2: " + Hosts::address(0)) == std::string::npos,
            (a->err + b->err).find("node 1 of 2: " + Hosts::address(1)) == std::string::npos)
      << "the address by which its host reaches etcd: " << a->err << b->err;
  Command one(trireme(
      {"train", folder_ / "tiny.json", "--nproc-per-node=2", "--steps=60", "--run-dir", alone}));
  ASSERT_EQ(one.finish(kPatience), 0) << one.err;
  for (const char* file : {"model.safetensors", "state.safetensors"})
    EXPECT_EQ(read_file(run + "/step-00000060/" + file),
              read_file(alone + "/step-00000060/" + file));
}

TEST_F(faults_etcd, a_host_that_is_cut_off_is_left_behind_and_comes_back) {
  const std::string script = "echo $WORLD_SIZE nodes, $MASTER_ADDR; while [ ! -e " +
                             folder_ / "end" + " ]; do sleep 0.05; done";
  const Arguments program{"sh", "-c", script};
  const auto a = on(0, {"run", "--nnodes=1:2"}, program);
  ASSERT_TRUE(a->wait_for("1 nodes, " + Hosts::address(0) + "\n", kPatience)) << a->err;
  {
    const auto b = on(1, {"run", "--nnodes=1:2"}, program);
    ASSERT_TRUE(b->wait_for("2 nodes, " + Hosts::address(0) + "\n", kPatience)) << b->err;
    ASSERT_TRUE(a->wait_for("2 nodes, ", kPatience)) << a->err;
    hosts_.cut(1);
    a->out.clear();
    ASSERT_TRUE(a->wait_for("1 nodes, ", kPatience)) << a->err;
    EXPECT_EQ(b->finish(kPatience), 1) << b->err;
  }
  hosts_.mend(1);
  const auto again = on(1, {"run", "--nnodes=1:2"}, program);
  ASSERT_TRUE(again->wait_for("2 nodes, ", kPatience)) << again->err;
  write(folder_ / "end", "now");
  EXPECT_EQ(a->finish(kPatience), 0) << a->err;
  EXPECT_EQ(again->finish(kPatience), 0) << again->err;
}

}  // namespace
}  // namespace trireme::testing::etcd_test
