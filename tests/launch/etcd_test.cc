// SPDX-License-Identifier: Apache-2.0
// --rdzv-backend=etcd: launchers that meet through a real etcd, which may be late, lost, or none.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "tests/launch/cluster.h"
#include "tests/support/answering_server.h"
#include "tests/support/etcd_server.h"
#include "tests/support/ports.h"

namespace trireme::launch::etcd_test {
namespace {

using std::chrono::seconds;
using testing::AnsweringServer;
using testing::EtcdServer;
using testing::eventually;

constexpr Duration kPatience = seconds(60);
constexpr const char* kSay =
    "echo rank $RANK of $WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE";
constexpr const char* kStore = "/trireme/cluster/store";

#define ASSERT_SAYS(job, text) \
  ASSERT_TRUE((job).wait_for(text, 1, kPatience)) << (job).out_text << (job).err_text
#define ASSERT_SAYS_ERROR(job, text) \
  ASSERT_TRUE((job).wait_for_error(text, kPatience)) << (job).out_text << (job).err_text
#define EXPECT_ENDS(job, code) \
  EXPECT_EQ((job).wait(kPatience), code) << (job).out_text << (job).err_text
#define EXPECT_ONCE(text, part) EXPECT_EQ(JobProcess::count(text, part), 1) << (text)

class launch_etcd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = EtcdServer::missing(); !why.empty()) GTEST_SKIP() << why;
    etcd_ = std::make_unique<EtcdServer>();
    ASSERT_TRUE(etcd_->answers()) << etcd_->log();
  }
  JobProcess start(const std::string& nodes, int workers, const std::string& script,
                   const std::string& conf = "", const Words& more = {}) const {
    return cluster_.start(
        Cluster::with(Cluster::at_etcd(etcd_->endpoint(), nodes, workers, conf), more), script);
  }
  /// Says where it is; ends when the file is there.
  std::string worker() const {
    return std::string(kSay) + "; trap 'exit 75' TERM; while [ ! -e " + cluster_.path("end") +
           " ]; do sleep 0.05; done";
  }
  void let_end() const { write_file_atomic(cluster_.path("end"), "now"); }
  /// What a launcher on "far" would publish.
  static std::string place(const std::string& address) {
    return "{\"trireme\":1,\"address\":\"" + address + "\",\"host\":\"far\",\"token\":\"x\"}";
  }
  void wait_for_store() const {
    ASSERT_TRUE(eventually([&] { return etcd_->get(kStore).has_value(); }));
  }

  std::unique_ptr<EtcdServer> etcd_;
  const Cluster cluster_;
};

TEST_F(launch_etcd, nodes_are_numbered_as_they_come_and_leave_nothing_behind) {
  JobProcess a = start("3", 2, kSay);
  wait_for_store();
  EXPECT_EQ(etcd_->get(kStore)->find(read_file(cluster_.secret())), std::string::npos);
  JobProcess b = start("3", 1, kSay);
  ASSERT_SAYS_ERROR(a, "waits for");  // the third one comes late
  JobProcess c = start("3", 1, kSay);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
  EXPECT_ENDS(c, 0);
  const std::string all = a.out_text + b.out_text + c.out_text;
  for (int rank = 0; rank < 4; ++rank) EXPECT_ONCE(all, "rank " + std::to_string(rank) + " of 4, ");
  EXPECT_ONCE(a.out_text, "rank 1 of 4, node 0 of 3\n");
  EXPECT_EQ(etcd_->count(), 0u) << "keys and leases";
}

TEST_F(launch_etcd, the_launcher_with_the_store_may_be_killed_and_who_comes_finds_the_next) {
  JobProcess a = start("1:2", 1, worker(), "last_call_timeout=0");
  ASSERT_SAYS(a, "rank 0 of 1,");
  JobProcess b = start("1:2", 1, worker(), "last_call_timeout=0");
  ASSERT_SAYS(b, "rank 1 of 2,");
  const std::string first = etcd_->get(kStore).value_or("");
  a.send(SIGKILL);
  ASSERT_SAYS(b, "rank 0 of 1,");
  ASSERT_TRUE(eventually([&] {
    const auto now = etcd_->get(kStore);
    return now && *now != first;
  })) << "two seconds after the first launcher's death its place is free";
  JobProcess c = start("1:2", 1, worker());
  ASSERT_SAYS(c, "rank 1 of 2,");
  let_end();
  EXPECT_ENDS(b, 0);
  EXPECT_ENDS(c, 0);
  EXPECT_EQ(etcd_->get(kStore), std::nullopt);
}

TEST_F(launch_etcd, a_list_of_servers_may_begin_with_a_dead_one) {
  const std::string list =
      "127.0.0.1:" + std::to_string(testing::free_tcp_port()) + "," + etcd_->endpoint();
  JobProcess a = cluster_.start(Cluster::at_etcd(list, "2", 1), kSay);
  JobProcess b = start("2", 1, kSay);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
  EXPECT_ONCE(a.out_text + b.out_text, "rank 0 of 2, ");
  EXPECT_ONCE(a.out_text + b.out_text, "rank 1 of 2, ");
}

TEST_F(launch_etcd, one_that_comes_later_is_waited_for) {
  etcd_->kill();
  JobProcess a = start("2", 1, kSay);
  ASSERT_SAYS_ERROR(a, "etcd does not answer. " + etcd_->endpoint() + ": ");
  ASSERT_TRUE(etcd_->start()) << etcd_->log();
  JobProcess b = start("2", 1, kSay);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
}

TEST_F(launch_etcd, one_that_is_not_there_is_named_when_the_time_is_over) {
  etcd_->kill();
  const auto begin = Clock::now();
  JobProcess a = start("2", 1, kSay, "join_timeout=1");
  EXPECT_ENDS(a, 99);
  EXPECT_LT(Clock::now() - begin, seconds(10));
  EXPECT_ONCE(a.err_text, "the nodes of job 'cluster' did not meet through etcd at " +
                              etcd_->endpoint() + " within 1 s: etcd does not answer. ");
  EXPECT_EQ(JobProcess::count(a.err_text, "\n"), 1) << a.err_text;
}

TEST_F(launch_etcd, one_that_is_silent_costs_no_more_than_the_time_and_lets_itself_be_interrupted) {
  etcd_->send(SIGSTOP);
  JobProcess late = start("2", 1, kSay, "join_timeout=1");
  JobProcess stopped = start("2", 1, kSay);
  EXPECT_ENDS(late, 99);
  stopped.send(SIGINT);
  const auto begin = Clock::now();
  EXPECT_ENDS(stopped, 130);
  EXPECT_LT(Clock::now() - begin, seconds(5));
  etcd_->send(SIGCONT);
}

TEST_F(launch_etcd, another_program_at_its_port_is_refused_at_once) {
  net::Listener listener = net::Listener::loopback();
  const std::string endpoint = listener.endpoint().address.text();
  // The launcher is a fork, so it comes before the server's thread, which may hold the sanitizer's
  // allocator.
  JobProcess a = cluster_.start(Cluster::at_etcd(endpoint, "2", 1), kSay);
  const AnsweringServer stranger("SSH-2.0-OpenSSH_9.2\r\n", std::move(listener));
  EXPECT_ENDS(a, 99);
  EXPECT_ONCE(a.err_text, "etcd cannot be used. " + endpoint + ": this is no etcd");
  EXPECT_EQ(JobProcess::count(a.err_text, "\n"), 1) << a.err_text;
}

TEST_F(launch_etcd, another_secret_is_refused_and_the_job_goes_on) {
  write_secret(cluster_.path("wrong"), net::generate_secret());
  JobProcess a = start("2", 1, kSay);
  wait_for_store();
  JobProcess other =
      cluster_.start(Cluster::at_etcd(etcd_->endpoint(), "2", 1), kSay, cluster_.path("wrong"));
  EXPECT_ENDS(other, 99);
  EXPECT_ONCE(other.err_text, "job 'cluster' in etcd is not ours: ");
  EXPECT_ONCE(other.err_text, ": wrong secret. Give every rank");
  JobProcess b = start("2", 1, kSay);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
}

namespace {

/// Says the same to everybody. A process: launchers are forked from this one, which then may have
/// no other threads.
class Stranger {
 public:
  explicit Stranger(const std::string& bytes) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(120);
    while (true) try {
        net::Socket socket = listener_.accept(Deadline::after(seconds(60)));
        socket.send_all(bytes, Deadline::after(seconds(20)));
        socket.shutdown_write();
        char request[4096];
        const auto enough = Deadline::after(std::chrono::milliseconds(200));
        while (socket.wait_readable(enough))
          if (const auto read = socket.recv_now(request, sizeof request); read && *read == 0) break;
      } catch (const Error&) {  // the other end has had enough
      }
  }
  ~Stranger() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  std::string endpoint() const { return listener_.endpoint().address.text(); }

 private:
  net::Listener listener_ = net::Listener::loopback();
  const pid_t pid_;
};

}  // namespace

TEST_F(launch_etcd, who_is_no_store_at_the_published_address_is_not_believed) {
  const Stranger stranger("SSH-2.0-OpenSSH_9.2\r\n");
  EtcdClient etcd = etcd_->client();
  const int64_t lease = etcd.grant(seconds(600));
  etcd.put_if_absent(kStore, place(stranger.endpoint()), lease);
  JobProcess a = start("2", 1, kSay), b = start("2", 1, kSay);
  ASSERT_SAYS_ERROR(a,
                    "the store that far keeps at " + stranger.endpoint() + " does not let us in");
  etcd.revoke(lease);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
}

TEST_F(launch_etcd, what_is_no_address_of_ours_is_refused_with_what_to_do) {
  EtcdClient etcd = etcd_->client();
  std::string other_release = place("h:1");
  other_release.replace(other_release.find(":1"), 2, ":2");
  for (const std::string& value :
       {std::string("hello"), std::string("{}"), std::string("[1]"), other_release, place("h"),
        place("h:99999"), place(std::string(5000, 'h') + ":1"),
        std::string("{\"trireme\":1,\"address\":\"h:1\",\"host\":7,\"token\":\"x\"}")}) {
    const int64_t lease = etcd.grant(seconds(600));
    etcd.put_if_absent(kStore, value, lease);
    JobProcess a = start("2", 1, kSay);
    EXPECT_ENDS(a, 99);
    EXPECT_ONCE(a.err_text, "delete it with 'etcdctl del /trireme/cluster/store'");
    EXPECT_EQ(JobProcess::count(a.err_text, "\n"), 1) << value << ": " << a.err_text;
    etcd.revoke(lease);
  }
}

TEST_F(launch_etcd, the_place_of_a_launcher_that_is_killed_is_free_when_its_lease_ends) {
  JobProcess keeper = start("3", 1, kSay);
  wait_for_store();
  JobProcess a = start("3", 1, kSay);
  ASSERT_SAYS_ERROR(a, "waits for");
  keeper.send(SIGKILL);
  JobProcess b = start("3", 1, kSay);  // finds the address of one that is gone
  ASSERT_SAYS_ERROR(a, "the nodes meet again");
  JobProcess c = start("3", 1, kSay);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
  EXPECT_ENDS(c, 0);
  const std::string all = a.out_text + b.out_text + c.out_text;
  for (int rank = 0; rank < 3; ++rank) EXPECT_ONCE(all, "rank " + std::to_string(rank) + " of 3, ");
  EXPECT_EQ(keeper.out_text, "");
  EXPECT_TRUE(eventually([&] { return etcd_->count() == 0; }));
}

TEST_F(launch_etcd, what_a_killed_job_left_does_not_disturb_the_next_of_its_name) {
  {
    JobProcess a = start("2", 1, worker()), b = start("2", 1, worker());
    ASSERT_SAYS(a, "of 2, ");
    ASSERT_SAYS(b, "of 2, ");
    a.send(SIGKILL);
    b.send(SIGKILL);
    EXPECT_TRUE(a.wait_for_silence(kPatience));
    EXPECT_TRUE(b.wait_for_silence(kPatience));
  }
  write_secret(cluster_.path("another"), net::generate_secret());
  const Words flags = Cluster::at_etcd(etcd_->endpoint(), "2", 1);
  JobProcess a = cluster_.start(flags, kSay, cluster_.path("another"));
  JobProcess b = cluster_.start(flags, kSay, cluster_.path("another"));
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
}

TEST_F(launch_etcd, a_node_too_many_waits_and_begins_the_next_job_of_the_name) {
  JobProcess a = start("2", 1, worker()), b = start("2", 1, worker());
  ASSERT_SAYS(a, "of 2, ");
  ASSERT_SAYS(b, "of 2, ");
  JobProcess late = start("2", 1, kSay, "join_timeout=1");
  EXPECT_ENDS(late, 99);
  EXPECT_ONCE(late.err_text, "that has all its nodes, or ends");
  JobProcess c = start("2", 1, kSay);
  ASSERT_SAYS_ERROR(c, "that has all its nodes, or ends");
  JobProcess d = start("2", 1, kSay);
  let_end();
  for (JobProcess* job : {&a, &b, &c, &d}) EXPECT_ENDS(*job, 0);
}

TEST_F(launch_etcd, may_be_killed_and_come_back_in_the_midst_of_the_meeting) {
  JobProcess a = start("2", 1, kSay);
  wait_for_store();
  etcd_->kill();
  JobProcess b = start("2", 1, kSay);
  ASSERT_SAYS_ERROR(b, "etcd does not answer");
  ASSERT_TRUE(etcd_->start()) << etcd_->log();
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
  EXPECT_ONCE(a.out_text + b.out_text, "rank 0 of 2, ");
  EXPECT_ONCE(a.out_text + b.out_text, "rank 1 of 2, ");
}

TEST_F(launch_etcd, may_be_killed_and_come_back_in_the_midst_of_the_job) {
  const std::string soon = "last_call_timeout=0";
  JobProcess a = start("1:2", 1, worker(), soon);
  ASSERT_SAYS(a, "rank 0 of 1, ");
  etcd_->kill();
  ASSERT_SAYS_ERROR(a, "the job goes on, and no other node finds it meanwhile");
  ASSERT_TRUE(etcd_->start()) << etcd_->log();
  JobProcess b = start("1:2", 1, worker(), soon);
  ASSERT_SAYS(a, "rank 0 of 2, ");
  ASSERT_SAYS(b, "rank 1 of 2, ");
  etcd_->kill();
  let_end();
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
}

TEST_F(launch_etcd, nodes_come_and_go) {
  const std::string soon = "last_call_timeout=0";
  JobProcess a = start("1:2", 1, worker(), soon);
  ASSERT_SAYS(a, "rank 0 of 1, ");
  JobProcess b = start("1:2", 2, worker(), soon);
  ASSERT_SAYS(b, "rank 2 of 3, node 1 of 2\n");
  ASSERT_SAYS(a, "rank 0 of 3, ");
  b.send(SIGKILL);
  ASSERT_TRUE(a.wait_for("rank 0 of 1, ", 2, kPatience)) << a.out_text << a.err_text;
  JobProcess c = start("1:2", 1, worker(), soon);
  ASSERT_SAYS(c, "rank 1 of 2, ");
  let_end();
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(c, 0);
  EXPECT_EQ(etcd_->get(kStore), std::nullopt);
  EXPECT_EQ(etcd_->count(), 2u) << "that b is lost was claimed, and stands there for an hour";
}

TEST_F(launch_etcd, nodes_that_come_and_go_meet_again_if_the_first_dies_before_they_begin) {
  JobProcess keeper = start("2:3", 1, kSay);
  wait_for_store();
  JobProcess a = start("2:3", 1, kSay, "last_call_timeout=600");
  ASSERT_SAYS_ERROR(a, "waits for its turn");
  keeper.send(SIGKILL);
  ASSERT_SAYS_ERROR(a, "the nodes meet again");
  JobProcess b = start("2:3", 1, kSay), c = start("2:3", 1, kSay);
  for (JobProcess* job : {&a, &b, &c}) EXPECT_ENDS(*job, 0);
  EXPECT_ONCE(a.out_text + b.out_text + c.out_text, "rank 2 of 3, ");
}

TEST_F(launch_etcd, a_launcher_that_was_taken_for_dead_does_not_go_on_beside_its_successor) {
  const std::string soon = "last_call_timeout=0";
  JobProcess a = start("1:2", 1, worker(), soon);
  ASSERT_SAYS(a, "rank 0 of 1, ");
  a.send(SIGSTOP);
  JobProcess b = start("1:2", 1, worker(), soon);
  ASSERT_SAYS(b, "rank 0 of 1, ");
  a.send(SIGCONT);
  EXPECT_ENDS(a, 75);
  EXPECT_ONCE(a.err_text, "another launcher has begun job 'cluster' anew");
  let_end();
  EXPECT_ENDS(b, 0);
}

TEST_F(launch_etcd, a_failure_starts_the_workers_of_all_nodes_again) {
  const std::string script =
      "echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK; "
      "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 3; fi; "
      "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1000; fi";
  JobProcess a = start("2", 1, script, "", {"--max-restarts=1"});
  JobProcess b = start("2", 1, script, "", {"--max-restarts=1"});
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
  EXPECT_ONCE(a.out_text + b.out_text, "attempt 1 rank 0\n");
  EXPECT_ONCE(a.out_text + b.out_text, "attempt 1 rank 1\n");
}

TEST_F(launch_etcd, an_address_that_cannot_be_reached_is_named_with_what_to_do) {
  // As a host behind which a launcher gave a wrong --local-addr; nobody ends this key.
  const std::string address = "127.0.0.1:" + std::to_string(testing::free_tcp_port());
  EtcdClient etcd = etcd_->client();
  etcd.put_if_absent(kStore, place(address), etcd.grant(seconds(600)));
  JobProcess a = start("2", 1, kSay, "join_timeout=1");
  EXPECT_ENDS(a, 99);
  EXPECT_ONCE(a.err_text, "the store that far keeps at " + address + " does not let us in (");
  EXPECT_ONCE(a.err_text, "--local-addr");
}

TEST_F(launch_etcd, over_https_is_asked_if_its_certificate_is_trusted) {
  const EtcdServer https("https");
  ASSERT_TRUE(https.answers()) << https.log();
  const std::string ours = "protocol=https,cacert=" + https.authorities();
  JobProcess a = cluster_.start(Cluster::at_etcd(https.endpoint(), "2", 1, ours), kSay);
  JobProcess b = cluster_.start(Cluster::at_etcd(https.endpoint(), "2", 1, ours), kSay);
  EXPECT_ENDS(a, 0);
  EXPECT_ENDS(b, 0);
  JobProcess system =
      cluster_.start(Cluster::at_etcd(https.endpoint(), "2", 1, "protocol=https"), kSay);
  EXPECT_ENDS(system, 99);
  EXPECT_ONCE(system.err_text, "etcd cannot be used. " + https.endpoint() + ": SSL certificate");
  JobProcess no_file = cluster_.start(
      Cluster::at_etcd(https.endpoint(), "2", 1, "protocol=https,cacert=/no/such/file"), kSay);
  EXPECT_ENDS(no_file, 99);
  EXPECT_ONCE(no_file.err_text, "/no/such/file");
  JobProcess plain = start("2", 1, kSay, "protocol=https,join_timeout=1");
  EXPECT_ENDS(plain, 99);
  EXPECT_ONCE(plain.err_text, "no connection by TLS");
}

}  // namespace
}  // namespace trireme::launch::etcd_test
