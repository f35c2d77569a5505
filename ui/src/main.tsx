import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { takeCsrf } from "./api/client";
import { queryClient } from "./api/queries";
import { router } from "./app/router";
import { startTheme } from "./app/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/states.css";
import "./styles/shell.css";
import "./styles/parts.css";

startTheme();
takeCsrf();
const root = document.getElementById("page");
if (root)
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
