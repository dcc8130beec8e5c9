/* stop.c: SIGINT and SIGTERM. */
#include "stop.h"

#include <stdio.h>

volatile sig_atomic_t tool_stop_signal;

static void note(int number) {
  tool_stop_signal = number;
}

void tool_stop_watch(void) {
  static const int numbers[] = {SIGINT, SIGTERM};
  struct sigaction present, own = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND};
  for (int i = 0; i < 2; i++)
    if (sigaction(numbers[i], NULL, &present) == 0 && present.sa_handler != SIG_IGN)
      sigaction(numbers[i], &own, NULL);
}

const char *tool_stop_name(void) {
  return !tool_stop_signal ? "" : tool_stop_signal == SIGINT ? "SIGINT" : "SIGTERM";
}

void tool_stop_end(void) {
  if (!tool_stop_signal) return;
  fflush(NULL);
  signal(tool_stop_signal, SIG_DFL);
  raise(tool_stop_signal);
}

void tool_stop_on_hangup(void) {
  struct sigaction now;
  if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN) signal(SIGHUP, SIG_DFL);
}
