/* plan/shares.h: how much of one dimension each member gets. */
#ifndef TSR_PLAN_SHARES_H
#define TSR_PLAN_SHARES_H

#include <stdbool.h>
#include <stdint.h>

/* Minimise, over whole numbers x[r] >= 0 that sum to `grains` with x[r] <= capacity[r],
 *
 *     max over r of nanoseconds[r][x[r]]  +  collective(max over r of x[r])
 *
 * nanoseconds[r] has grains + 1 entries and never decreases; collective (NULL = 0) never decreases either. */
typedef struct tsr_shares_problem {
  int member_count;
  int64_t grains;
  const int64_t *const *nanoseconds;
  const int64_t *capacity;
  int64_t (*collective)(void *user, int64_t largest);
  void *user;
} tsr_shares_problem;

/* Exact. False if the capacities do not suffice. shares is filled with member_count numbers; *nanoseconds
 * with the minimum. Ties go to the smaller largest share, then to the most even ones, then to lower members.
 */
bool tsr_shares_solve(const tsr_shares_problem *problem, int64_t *shares, int64_t *nanoseconds);

#endif
