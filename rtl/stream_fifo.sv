// A queue with valid and ready on both sides; what is written is there two cycles later. Its memory
// is read into a register, as block RAM wants it.
module stream_fifo #(
    parameter int WIDTH = 8,  // bits of an entry
    parameter int DEPTH = 16  // entries, a power of two; the register at the end holds one more
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             in_valid,
    output logic             in_ready,
    input  logic [WIDTH-1:0] in_data,
    output logic             out_valid,
    input  logic             out_ready,
    output logic [WIDTH-1:0] out_data
);
  localparam int ADDRESS = $clog2(DEPTH);
  logic [WIDTH-1:0] memory[0:DEPTH-1];
  logic [ADDRESS:0] written, fetched;  // one bit more than an address: full is not empty
  logic fetch;
  always_comb begin
    in_ready = (written - fetched) != (ADDRESS + 1)'(DEPTH);
    fetch = written != fetched && (!out_valid || out_ready);
  end

  always_ff @(posedge clk) begin
    if (in_valid && in_ready) memory[written[ADDRESS-1:0]] <= in_data;
    if (fetch) out_data <= memory[fetched[ADDRESS-1:0]];
    if (rst) begin
      written <= '0;
      fetched <= '0;
      out_valid <= 1'b0;
    end else begin
      if (in_valid && in_ready) written <= written + 1'b1;
      if (fetch) fetched <= fetched + 1'b1;
      if (fetch) out_valid <= 1'b1;
      else if (out_ready) out_valid <= 1'b0;
    end
  end
endmodule
