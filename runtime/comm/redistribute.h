/* comm/redistribute.h: moves a matrix from one set of rectangles, spread over the members, to another.
 *
 * Both sides are lists of who has which rectangle, the same on all members. Each member finds the parts that
 * it sends, receives and copies by itself; what two members exchange is one stream of bytes, rectangle after
 * rectangle in the order of the lists, cut into messages. A pair that has nothing to exchange exchanges no
 * message. A source rectangle that several members have is taken from the receiver's own memory if it has it,
 * else from the owners in turn.
 *
 * Memory: two messages each way, packed and unpacked on the way; what lies in one run of memory is sent from
 * there, and received to there. Members take their partners in the order of their distance round the group,
 * in which no two wait for one another, however few messages are in flight.
 *
 * Thread safety: as the group's. */
#ifndef TSR_COMM_REDISTRIBUTE_H
#define TSR_COMM_REDISTRIBUTE_H

#include "comm/group.h"

typedef struct tsr_rectangle {
  int64_t row, col, rows, cols;
} tsr_rectangle;

/* Of no area: false. */
bool tsr_rectangle_meet(const tsr_rectangle *a, const tsr_rectangle *b, tsr_rectangle *out);

typedef struct tsr_owned {
  tsr_rectangle at;
  int64_t number; /* among the member's own: which view it lies in */
  int member;
} tsr_owned;

/* Orders by place, equal rectangles by member: what the lists below must be in. */
void tsr_owned_sort(tsr_owned *list, int64_t count);
/* How many equal rectangles, of as many owners, a sorted list has from `first` on. */
int64_t tsr_owned_equal(const tsr_owned *list, int64_t count, int64_t first);

/* Where a rectangle lies: element (i, j) at data + (i * row_stride + j * col_stride) elements. */
typedef struct tsr_view {
  char *data;
  int64_t row_stride, col_stride;
} tsr_view;

typedef struct tsr_redistribution_options {
  size_t element_bytes; /* 4 or 8 */
  bool column_major;    /* order of the elements in a message: best that of most memory */
  int64_t message_bytes;
  const tsr_owned *source, *target; /* borrowed for the call */
  int64_t source_count, target_count;
} tsr_redistribution_options;

typedef struct tsr_redistribution tsr_redistribution;

/* For local member `member`. The source covers what the target asks for. Gives *out. */
tsr_status tsr_redistribution_create(tsr_group *group, int member, const tsr_redistribution_options *options,
                                     tsr_redistribution **out, tsr_error *error);
void tsr_redistribution_destroy(tsr_redistribution **redistribution);
/* What one run sends, and the largest scratch that it can use. */
uint64_t tsr_redistribution_sent_bytes(const tsr_redistribution *redistribution);
size_t tsr_redistribution_scratch_bytes(const tsr_redistribution *redistribution);

/* A member's memory for one run: views by number. A part whose source and target are the same memory stays.
 */
typedef struct tsr_redistribution_memory {
  const tsr_view *source, *target;
  char *scratch;
} tsr_redistribution_memory;

/* [C] Runs all local members' redistributions of one matrix to the end. A failure marks the group broken, and
 * the others are told. Errors: COMM, RANK_LOST. */
tsr_status tsr_redistribute(tsr_group *group, tsr_redistribution *const *redistributions,
                            const tsr_redistribution_memory *memory, int count, tsr_error *error);

#endif
