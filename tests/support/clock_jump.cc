// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program (LD_PRELOAD), it sets its wall clock, and that of all that it starts, by
// as many seconds as stand in the file that TRIREME_TEST_CLOCK names (a double, which may change at
// any time). The machine's own clock stays as it is.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

namespace {

double offset() {
  static const volatile double* const there = []() -> const volatile double* {
    const char* const path = ::getenv("TRIREME_TEST_CLOCK");
    const int fd = path ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    void* memory =
        fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) ::close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<const volatile double*>(memory);
  }
  ();
  return there ? *there : 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, timespec* t) {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, id, t));
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
    t->tv_sec += static_cast<time_t>(std::floor(offset()));
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* t, void*) {
  timespec now{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}

__attribute__((visibility("default"))) time_t time(time_t* t) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
