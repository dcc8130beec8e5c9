/* For a bound u on the largest share, the least time T for which the members can take all grains is found by
 * bisection: within T a member takes at most the largest x with nanoseconds[x] <= T. That is exact for one u;
 * the collective's price depends on u alone, so the best u is found by trying all that can matter: from the
 * largest share of the unbounded optimum down to the even share. */
#include "plan/shares.h"

/* Largest x <= limit with row[x] <= time; -1 if even x = 0 takes longer. */
static int64_t most_within(const int64_t *row, int64_t limit, int64_t time) {
  if (row[0] > time) return -1;
  int64_t low = 0, high = limit;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (row[middle] <= time)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static int64_t limit_of(const tsr_shares_problem *problem, int r, int64_t largest) {
  int64_t limit = problem->capacity[r] < problem->grains ? problem->capacity[r] : problem->grains;
  return limit < largest ? limit : largest;
}

static bool takes_all(const tsr_shares_problem *problem, int64_t largest, int64_t time) {
  int64_t sum = 0;
  for (int r = 0; r < problem->member_count; r++) {
    int64_t most = most_within(problem->nanoseconds[r], limit_of(problem, r, largest), time);
    if (most < 0) return false;
    sum += most;
  }
  return sum >= problem->grains;
}

/* Least time under a bound on the largest share; -1 if the grains do not fit. */
static int64_t least_time(const tsr_shares_problem *problem, int64_t largest) {
  int64_t low = 0, high = 0;
  for (int r = 0; r < problem->member_count; r++) {
    int64_t most = problem->nanoseconds[r][limit_of(problem, r, largest)];
    if (most > high) high = most;
  }
  if (!takes_all(problem, largest, high)) return -1;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (takes_all(problem, largest, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* What members take if none takes more than `level` of the most that it can. */
static int64_t taken_at(const tsr_shares_problem *problem, const int64_t *most, int64_t level) {
  int64_t sum = 0;
  for (int r = 0; r < problem->member_count; r++) sum += most[r] < level ? most[r] : level;
  return sum;
}

/* The most even shares within `time`: all at one level but for those who cannot take so much; what is left
 * over goes to lower members. */
static void fill(const tsr_shares_problem *problem, int64_t largest, int64_t time, int64_t *shares) {
  for (int r = 0; r < problem->member_count; r++)
    shares[r] = most_within(problem->nanoseconds[r], limit_of(problem, r, largest), time);
  int64_t low = 0, high = largest;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (taken_at(problem, shares, middle) <= problem->grains)
      low = middle;
    else
      high = middle - 1;
  }
  int64_t left = problem->grains - taken_at(problem, shares, low);
  for (int r = 0; r < problem->member_count; r++) {
    if (shares[r] <= low) continue;
    shares[r] = low + (left > 0);
    left -= left > 0;
  }
}

bool tsr_shares_solve(const tsr_shares_problem *problem, int64_t *shares, int64_t *nanoseconds) {
  int64_t largest = problem->grains, time = least_time(problem, largest), best = time;
  if (time < 0) return false;
  fill(problem, largest, time, shares);
  if (problem->collective) {
    int64_t top = 0, even = (problem->grains + problem->member_count - 1) / problem->member_count;
    best = INT64_MAX;
    for (int r = 0; r < problem->member_count; r++)
      if (shares[r] > top) top = shares[r];
    for (int64_t u = top; u >= even; u--) {
      int64_t own = least_time(problem, u);
      if (own < 0 || own > best) break; /* a smaller u only takes longer */
      int64_t total = own + problem->collective(problem->user, u);
      if (total > best) continue;
      best = total;
      largest = u;
      time = own;
    }
    fill(problem, largest, time, shares);
  }
  *nanoseconds = best;
  return true;
}
