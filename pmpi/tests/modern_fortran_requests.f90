! Through mpi_f08: what has no buffer. Waits of all kinds, a split, a grid, barriers, statuses that nobody wants.
program more
  use mpi_f08
  implicit none
  integer :: rank, ranks, index, ended, indices(4), provided
  logical :: done, periodic(1)
  type(MPI_Request) :: requests(4)
  type(MPI_Status) :: statuses(4), status
  type(MPI_Comm) :: half, ring
  integer :: sent(2), received(2), total

  call MPI_Init_thread(MPI_THREAD_SINGLE, provided)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  sent = rank
  call exchange()
  call MPI_Waitall(4, requests, statuses)
  if (statuses(1)%MPI_SOURCE /= mod(rank + ranks - 1, ranks)) call MPI_Abort(MPI_COMM_WORLD, 2)
  call exchange()
  call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
  call exchange()
  do
    call MPI_Waitany(4, requests, index, status)
    if (index == MPI_UNDEFINED) exit
    if (index < 1 .or. index > 4) call MPI_Abort(MPI_COMM_WORLD, 3)
    if (requests(index) /= MPI_REQUEST_NULL) call MPI_Abort(MPI_COMM_WORLD, 4)
  end do
  call exchange()
  do
    call MPI_Testsome(4, requests, ended, indices, MPI_STATUSES_IGNORE)
    if (ended == MPI_UNDEFINED) exit
  end do
  call exchange()
  do
    call MPI_Testall(4, requests, done, statuses)
    if (done) exit
  end do
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, half)
  periodic(1) = .true.
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], periodic, .false., ring)
  call MPI_Barrier(ring)
  call MPI_Comm_free(half)
  call MPI_Finalize()
contains
  subroutine exchange()
    integer :: next, last
    next = mod(rank + 1, ranks)
    last = mod(rank + ranks - 1, ranks)
    call MPI_Irecv(received(1), 1, MPI_INTEGER, last, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Irecv(received(2), 1, MPI_INTEGER, last, 2, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(sent(1), 1, MPI_INTEGER, next, 1, MPI_COMM_WORLD, requests(3))
    call MPI_Isend(sent(2), 1, MPI_INTEGER, next, 2, MPI_COMM_WORLD, requests(4))
  end subroutine
end program
