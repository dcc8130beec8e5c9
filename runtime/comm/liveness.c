/* comm/liveness.c: see liveness.h. */
#include "comm/liveness.h"

#include "base/memory.h"

/* Per deadline: signs sent, looks for signs. A gap between two calls longer than a sign's interval was not
 * spent calling. */
static const double signs_per_deadline = 8, looks_per_deadline = 64;

tsr_status tsr_liveness_init(tsr_liveness *liveness, int members, int me, double now, tsr_error *error) {
  *liveness = (tsr_liveness){.members = members, .me = me, .last_call = now};
  liveness->peers = tsr_calloc((size_t)members, sizeof *liveness->peers);
  if (liveness->peers) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the signs of life of %d members", members);
}

void tsr_liveness_finish(tsr_liveness *liveness) {
  free(liveness->peers);
}

tsr_liveness_due tsr_liveness_call(tsr_liveness *liveness, double now, double deadline_seconds) {
  double gap = now - liveness->last_call;
  liveness->deadline = deadline_seconds;
  liveness->last_call = now;
  if (gap <= tsr_liveness_sign_seconds(deadline_seconds)) liveness->calling += gap;
  if (now < liveness->next_look) return TSR_LIVENESS_NOTHING;
  liveness->next_look = now + tsr_liveness_look_seconds(deadline_seconds);
  if (now < liveness->next_sign) return TSR_LIVENESS_LOOK;
  liveness->next_sign = now + tsr_liveness_sign_seconds(deadline_seconds);
  return TSR_LIVENESS_SIGN;
}

double tsr_liveness_sign_seconds(double deadline_seconds) {
  return deadline_seconds / signs_per_deadline;
}

double tsr_liveness_look_seconds(double deadline_seconds) {
  return deadline_seconds / looks_per_deadline;
}

void tsr_liveness_heard(tsr_liveness *liveness, int peer) {
  liveness->peers[peer].heard_at = liveness->calling;
}

void tsr_liveness_lives(tsr_liveness *liveness, int peer) {
  liveness->peers[peer].lived_at = liveness->calling;
}

void tsr_liveness_left(tsr_liveness *liveness, int peer) {
  liveness->peers[peer].left = true;
  liveness->peers[peer].left_at = liveness->calling;
}

static double later(double a, double b) {
  return a > b ? a : b;
}

int tsr_liveness_slow(tsr_liveness *liveness) {
  for (int i = 0; i < liveness->members; i++) {
    struct tsr_liveness_peer *p = &liveness->peers[i];
    bool told = p->told_at > p->heard_at && liveness->calling - p->told_at <= liveness->deadline;
    if (i == liveness->me || p->left || told) continue;
    if (liveness->calling - p->heard_at <= liveness->deadline / 2) continue;
    p->told_at = liveness->calling;
    return i;
  }
  return -1;
}

int tsr_liveness_lost(const tsr_liveness *liveness) {
  double longest = liveness->deadline;
  int found = -1;
  for (int i = 0; i < liveness->members; i++) {
    const struct tsr_liveness_peer *p = &liveness->peers[i];
    double silence = liveness->calling - later(p->heard_at, p->lived_at);
    if (i == liveness->me || p->left || silence <= longest) continue;
    longest = silence;
    found = i;
  }
  return found;
}

bool tsr_liveness_left_long_ago(const tsr_liveness *liveness, int peer) {
  const struct tsr_liveness_peer *p = &liveness->peers[peer];
  return p->left && liveness->calling - p->left_at > liveness->deadline;
}
