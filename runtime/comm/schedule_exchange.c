/* comm/schedule_exchange.c: all-to-all, at once or one pair of neighbours after the other. */
#include "comm/schedule_round.h"

enum { MEMBERS_MAX = 1024 }; /* a request for each is kept */

static void receive_block(round_builder *b, int peer) {
  const int64_t *starts = b->schedule->out_starts;
  tsr_round_receive(b, peer, OUT, starts[peer] + b->segment * b->schedule->segment,
                    tsr_run_clip(b, starts[peer + 1] - starts[peer]));
}

static void send_block(round_builder *b, int peer) {
  const int64_t *starts = b->schedule->in_starts;
  tsr_round_send(b, peer, IN, starts[peer] + b->segment * b->schedule->segment,
                 tsr_run_clip(b, starts[peer + 1] - starts[peer]));
}

static void copy_own_block(round_builder *b) {
  const tsr_schedule *s = b->schedule;
  const int64_t skipped = b->segment * s->segment;
  tsr_round_copy(b, IN, s->in_starts[s->me] + skipped, OUT, s->out_starts[s->me] + skipped,
                 tsr_run_clip(b, s->in_starts[s->me + 1] - s->in_starts[s->me]), false);
}

/* The k-th neighbour upwards. */
static int neighbour(const round_builder *b, int k) {
  return (int)(((int64_t)b->schedule->me + k) % b->schedule->members);
}

static int one_round(const tsr_schedule *s) {
  (void)s;
  return 1;
}

static void exchange_direct(round_builder *b, int round) {
  (void)round;
  const int n = b->schedule->members;
  for (int k = n - 1; k > 0; k--) receive_block(b, neighbour(b, k));
  for (int k = 1; k < n; k++) send_block(b, neighbour(b, k));
  copy_own_block(b);
}

static int round_per_neighbour(const tsr_schedule *s) {
  return s->members - 1;
}

static void exchange_in_turn(round_builder *b, int round) {
  receive_block(b, neighbour(b, b->schedule->members - 1 - round));
  send_block(b, neighbour(b, round + 1));
  if (round == 0) copy_own_block(b);
}

const tsr_schedule_algorithm tsr_exchange_algorithms[] = {
    {TSR_ALL_TO_ALL, TSR_ALGORITHM_DIRECT, MEMBERS_MAX, one_round, exchange_direct, NULL, NULL, NULL},
    {TSR_ALL_TO_ALL, TSR_ALGORITHM_RING, INT32_MAX, round_per_neighbour, exchange_in_turn, NULL, NULL, NULL},
    {.emit = NULL},
};
