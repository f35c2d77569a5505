// Every route of the page. A screen is a folder in ../screens with `index.tsx` (loaded when first opened)
// and, when it has search parameters, `search.ts` with a function that checks them.
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { composition } from "../screens/compositions/search";
import { inbox } from "../screens/inbox/search";
import { plans } from "../screens/plans/search";
import { compare } from "../screens/compare/search";
import { run } from "../screens/run/search";
import { edit } from "../screens/builder/search";
import { runs } from "../screens/runs/search";
import { templates } from "../screens/templates/search";
import { tools } from "../screens/tools/search";
import { NotFound } from "./NotFound";
import { Root } from "./Root";
import { Skeleton } from "@/parts/Skeleton";

const rootRoute = createRootRoute({ component: Root, notFoundComponent: NotFound });
const under = <P extends string>(path: P) => ({ getParentRoute: () => rootRoute, path });

const routes = [
  createRoute({ ...under("/"), validateSearch: runs, component: lazyRouteComponent(() => import("../screens/runs")) }),
  createRoute({ ...under("/runs/$id"), validateSearch: run, component: lazyRouteComponent(() => import("../screens/run")) }),
  createRoute({ ...under("/compare"), validateSearch: compare, component: lazyRouteComponent(() => import("../screens/compare")) }),
  createRoute({ ...under("/inbox"), validateSearch: inbox, component: lazyRouteComponent(() => import("../screens/inbox")) }),
  createRoute({ ...under("/compositions"), validateSearch: composition, component: lazyRouteComponent(() => import("../screens/compositions")) }),
  createRoute({ ...under("/compositions/$name"), validateSearch: composition, component: lazyRouteComponent(() => import("../screens/compositions/one")) }),
  createRoute({ ...under("/edit"), validateSearch: edit, component: lazyRouteComponent(() => import("../screens/builder")) }),
  createRoute({ ...under("/tools"), validateSearch: tools, component: lazyRouteComponent(() => import("../screens/tools")) }),
  createRoute({ ...under("/templates"), validateSearch: templates, component: lazyRouteComponent(() => import("../screens/templates")) }),
  createRoute({ ...under("/plans"), validateSearch: plans, component: lazyRouteComponent(() => import("../screens/plans")) }),
  createRoute({ ...under("/settings"), component: lazyRouteComponent(() => import("../screens/settings")) }),
  createRoute({ ...under("/sign-in"), component: lazyRouteComponent(() => import("../screens/sign-in")) }),
] as const;

export const router = createRouter({
  routeTree: rootRoute.addChildren([...routes]),
  defaultPreload: "intent",
  defaultPendingComponent: Skeleton,
  // An unknown path under a known one (`/runs/x/y`) is the root's not-found screen.
  notFoundMode: "root",
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
