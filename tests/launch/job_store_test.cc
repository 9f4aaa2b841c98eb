// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/job_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <sstream>

#include "tests/launch/job_process.h"
#include "trireme/base/file.h"
#include "trireme/net/secret.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/store/tcp_store.h"

namespace trireme::launch::job_store_test {
namespace {

TEST(launch_job_store, the_secret_is_for_its_owner_alone_and_opens_the_store) {
  PrivateFolder folder;
  std::string path = folder / "secret";
  JobStore store("job3", path, 2);
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  auto at = net::Endpoint::parse(store.address());
  EXPECT_EQ(at.address.host, "127.0.0.1");
  auto deadline = Deadline::after(std::chrono::seconds(15));
  auto client = TcpStore::connect(at, {"job3", net::read_secret_file(path)}, deadline);
  EXPECT_EQ(client->add("count", 2), 2);
  EXPECT_THROW(TcpStore::connect(at, {"job3", net::Secret(net::generate_secret())}, deadline),
               UsageError);
}

TEST(launch_job_store, a_worker_finds_store_secret_and_job_in_its_environment) {
  JobProcess job({"--nproc-per-node=2", "--standalone"},
                 "echo $RANK $TRIREME_STORE $TRIREME_SECRET_FILE $TORCHELASTIC_RUN_ID end; "
                 "until [ -e $TRIREME_SECRET_FILE.done ]; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for(" end\n", 2)) << job.err_text;
  std::istringstream line(job.out_text);
  std::string rank, store, secret, id;
  line >> rank >> store >> secret >> id;
  std::map<std::string, std::string> variables{
      {"RANK", rank}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", id}, {"TRIREME_STORE", store}};
  RankEnv env = read_rank_env([&](const std::string& name) {
    return variables.count(name) ? std::optional(variables[name]) : std::nullopt;
  });
  auto client = TcpStore::connect(net::Endpoint::parse(env.store_endpoint),
                                  {env.job_id, net::read_secret_file(secret)},
                                  Deadline::after(std::chrono::seconds(15)));
  client->set("here", "yes");
  EXPECT_EQ(client->try_get("here"), "yes");
  write_file_atomic(secret + ".done", "");
  EXPECT_EQ(job.wait(), 0) << job.err_text;
}

}  // namespace
}  // namespace trireme::launch::job_store_test
