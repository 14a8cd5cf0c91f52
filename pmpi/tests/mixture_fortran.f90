! The same messages as mixture.c in part, on 4 ranks, from Fortran.
program mixture
  use mpi
  implicit none
  integer :: rank, ranks, next, before, opposite, half, ierror, i, which
  integer :: requests(2), status(MPI_STATUS_SIZE), counts(4), places(4)
  integer :: numbers(16), others(16)
  character :: sent(4096), received(4096)
  double precision :: one, total
  logical :: done

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  if (ranks /= 4) call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
  next = mod(rank + 1, ranks)
  before = mod(rank + ranks - 1, ranks)
  opposite = mod(rank + 2, ranks)
  sent = 'x'
  numbers = rank

  if (mod(rank, 2) == 0) then
    call MPI_Send(sent, 100, MPI_BYTE, next, 1, MPI_COMM_WORLD, ierror)
    call MPI_Recv(received, 100, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
  else
    call MPI_Recv(received, 100, MPI_BYTE, before, 1, MPI_COMM_WORLD, status, ierror)
    call MPI_Send(sent, 100, MPI_BYTE, next, 1, MPI_COMM_WORLD, ierror)
  end if

  call MPI_Irecv(others, 10, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, requests(1), ierror)
  call MPI_Isend(numbers, 10, MPI_INTEGER, opposite, 2, MPI_COMM_WORLD, requests(2), ierror)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  if (others(1) /= opposite) call MPI_Abort(MPI_COMM_WORLD, 3, ierror)

  call MPI_Sendrecv(sent, 64, MPI_BYTE, next, 3, received, 64, MPI_BYTE, before, 3, MPI_COMM_WORLD, status, ierror)
  if (status(MPI_SOURCE) /= before) call MPI_Abort(MPI_COMM_WORLD, 4, ierror)

  call MPI_Send_init(sent, 7, MPI_CHARACTER, before, 4, MPI_COMM_WORLD, requests(1), ierror)
  call MPI_Recv_init(received, 7, MPI_CHARACTER, next, 4, MPI_COMM_WORLD, requests(2), ierror)
  do i = 1, 3
    call MPI_Startall(2, requests, ierror)
    call MPI_Waitany(2, requests, which, status, ierror)
    done = .false.
    do while (.not. done)
      call MPI_Testall(2, requests, done, MPI_STATUSES_IGNORE, ierror)
    end do
  end do
  call MPI_Request_free(requests(1), ierror)
  call MPI_Request_free(requests(2), ierror)
  call MPI_Sendrecv(sent, 5, MPI_BYTE, rank, 5, received, 5, MPI_BYTE, rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)

  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, ierror)
  call MPI_Sendrecv(sent, 1000, MPI_BYTE, 1 - rank / 2, 7, received, 1000, MPI_BYTE, 1 - rank / 2, 7, half, &
      MPI_STATUS_IGNORE, ierror)
  call MPI_Allreduce(numbers, others, 6, MPI_INTEGER, MPI_SUM, half, ierror)
  call MPI_Comm_free(half, ierror)

  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  call MPI_Bcast(sent, 16, MPI_BYTE, 1, MPI_COMM_WORLD, ierror)
  one = 1
  call MPI_Allreduce(one, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (total /= 4) call MPI_Abort(MPI_COMM_WORLD, 5, ierror)
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Iallreduce(one, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, requests(1), ierror)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
  call MPI_Gather(sent, 12, MPI_BYTE, received, 12, MPI_BYTE, 0, MPI_COMM_WORLD, ierror)
  call MPI_Alltoall(numbers, 1, MPI_INTEGER, others, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
  do i = 1, 4
    counts(i) = rank + i - 1
    places(i) = 16 * (i - 1)
  end do
  call MPI_Alltoallv(sent, counts, places, MPI_BYTE, received, counts, places, MPI_BYTE, MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
end program
