! Through the module mpi_f08, without the argument ierror: 24 bytes to the next of 3 ranks, from anywhere, and a sum.
program modern
  use mpi_f08
  implicit none
  integer :: rank, ranks
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status
  double precision :: sent(3), received(3), total(3)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  sent = rank
  call MPI_Irecv(received, 3, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, requests(1))
  call MPI_Isend(sent, 3, MPI_DOUBLE_PRECISION, mod(rank + 1, ranks), 1, MPI_COMM_WORLD, requests(2))
  call MPI_Wait(requests(1), status)
  call MPI_Wait(requests(2), MPI_STATUS_IGNORE)
  if (status%MPI_SOURCE /= mod(rank + ranks - 1, ranks)) call MPI_Abort(MPI_COMM_WORLD, 2)
  call MPI_Allreduce(sent, total, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  if (total(1) /= 3) call MPI_Abort(MPI_COMM_WORLD, 3)
  call MPI_Finalize()
end program
